"""Softmax over depth: the one operation that every routed scheme is made of."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection

import torch
from torch import Tensor

from dares.names import unknown_name
from dares.ops.depth_mix.grouped import GroupedMixer
from dares.ops.depth_mix.interface import DepthMixer, MixPlan, MixState, ReadRule
from dares.ops.depth_mix.naive import NaiveMixer, depth_mix


def _triton_mixer(plan: MixPlan) -> DepthMixer:
    from dares.ops.depth_mix.triton import TritonMixer  # Triton is an extra

    return TritonMixer(plan)


BACKENDS: dict[str, Callable[[MixPlan], DepthMixer]] = {
    "naive": NaiveMixer,
    "grouped": GroupedMixer,
    "triton": _triton_mixer,
}


def check_backend(name: str) -> str:
    """The name, if there is such a backend."""
    if name not in ("auto", *BACKENDS):
        raise ValueError(unknown_name("backend", name, ["auto", *BACKENDS]))
    return name


def build_mixers(backend: str, plan: MixPlan) -> dict[str, DepthMixer]:
    """The mixers that a choice of backend may need, by name."""
    if backend != "auto":
        return {check_backend(backend): BACKENDS[backend](plan)}
    names = [name for name in BACKENDS if name != "triton" or _triton_is_for(plan)]
    return {name: BACKENDS[name](plan) for name in names}


def choose_backend(backend: str, embeddings: Tensor, among: Collection[str]) -> str:
    """Which backend a pass uses; "auto" chooses among those, a name is taken at its word."""
    if backend != "auto":
        return backend
    on_gpu = embeddings.is_cuda and torch.cuda.get_device_properties(embeddings.device).major >= 8
    exact = embeddings.dtype == torch.float64
    return "triton" if on_gpu and not exact and "triton" in among else "grouped"


def _triton_is_for(plan: MixPlan) -> bool:
    """Is this a CUDA build that sees a GPU, is Triton installed, is the plan within its limits?"""
    usable = torch.cuda.is_available() and torch.version.hip is None
    if not usable or importlib.util.find_spec("triton") is None:
        return False
    from dares.ops.depth_mix.triton import obstacle

    return obstacle(plan) is None


__all__ = [
    "BACKENDS",
    "DepthMixer",
    "MixPlan",
    "MixState",
    "ReadRule",
    "build_mixers",
    "check_backend",
    "choose_backend",
    "depth_mix",
]
