"""Softmax over depth: the one operation that every routed scheme is made of."""

from __future__ import annotations

from dares.names import unknown_name
from dares.ops.depth_mix.grouped import GroupedMixer
from dares.ops.depth_mix.interface import DepthMixer, MixPlan, MixState
from dares.ops.depth_mix.naive import NaiveMixer, depth_mix

BACKENDS: dict[str, type[DepthMixer]] = {
    "naive": NaiveMixer,
    "grouped": GroupedMixer,
}


def check_backend(name: str) -> str:
    """The name, if there is such a backend."""
    if name not in ("auto", *BACKENDS):
        raise ValueError(unknown_name("backend", name, ["auto", *BACKENDS]))
    return name


def build_mixer(backend: str, plan: MixPlan) -> DepthMixer:
    """The mixer of a backend; "auto" chooses, a name is taken at its word."""
    return BACKENDS["grouped" if backend == "auto" else check_backend(backend)](plan)


__all__ = [
    "BACKENDS",
    "DepthMixer",
    "MixPlan",
    "MixState",
    "build_mixer",
    "check_backend",
    "depth_mix",
]
