"""Softmax over depth: the one operation that every routed scheme is made of."""

from __future__ import annotations

import torch
from torch import Tensor

from dares.names import unknown_name
from dares.ops.depth_mix.grouped import GroupedMixer
from dares.ops.depth_mix.interface import DepthMixer, MixPlan, MixState, ReadRule
from dares.ops.depth_mix.naive import NaiveMixer, depth_mix

FEW_TOKENS = 64

BACKENDS: dict[str, type[DepthMixer]] = {
    "naive": NaiveMixer,
    "grouped": GroupedMixer,
}


def check_backend(name: str) -> str:
    """The name, if there is such a backend."""
    if name not in ("auto", *BACKENDS):
        raise ValueError(unknown_name("backend", name, ["auto", *BACKENDS]))
    return name


def build_mixers(backend: str, plan: MixPlan) -> dict[str, DepthMixer]:
    """The mixers that a choice of backend may need, by name."""
    names = BACKENDS if backend == "auto" else [check_backend(backend)]
    return {name: BACKENDS[name](plan) for name in names}


def choose_backend(backend: str, embeddings: Tensor) -> str:
    """Which backend a pass uses; "auto" chooses, a name is taken at its word.

    For a few tokens without gradients (decoding) there is little to read and nothing to keep: the
    plain formula has the fewest steps.
    """
    if backend != "auto":
        return backend
    tokens = embeddings.numel() // embeddings.shape[-1]
    return "naive" if tokens <= FEW_TOKENS and not torch.is_grad_enabled() else "grouped"


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
