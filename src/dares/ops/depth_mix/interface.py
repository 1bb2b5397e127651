"""What every backend offers: a bank of sources that many routers read in turn."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dares.pytree import TensorState


@dataclass(frozen=True)
class MixPlan:
    """What is known before a pass begins.

    groups   how many routers are in each group, in the order in which they read; routers of one
             group share one pass over the sources that were finished when the group began
    sources  how many sources there will be at most (the running and the null one apart)
    null     one more source, zero with score zero: it takes weight and gives nothing
    eps      inside the root mean square of the keys
    """

    groups: tuple[int, ...]
    sources: int
    null: bool
    eps: float


class ReadRule(NamedTuple):
    """read = keep * h + scale * sum_i (a_i - shift) u_i, with shift 1/n if centred, else 0"""

    keep: float
    scale: float | Tensor  # a tensor: a site's gate
    centred: bool


@dataclass
class MixState(TensorState):
    """One pass's sources and the routers' keys [R, D] (query times gain)."""

    keys: Tensor
    sources: list[Tensor] = field(default_factory=list)


class DepthMixer:
    """z_i = key_r . u_i / rms(u_i),   a = softmax_i(z),   rms(u) = sqrt(mean(u^2) + eps)

    read = keep * h + scale * sum_i (a_i - shift) u_i      shift = 1/n if centred, else 0

    over the finished sources, the running one if it is given, and the null source if there is one
    (n counts them all). Centred: where the bank sums to h, this reads the mix as a correction to h
    that is zero, to the last bit, at uniform weights.

    Every backend has these three calls and computes this function; they differ in what they keep
    and in how often they read it. Scores, softmax and sums are in float32 (float64 for float64
    sources).                                                                     (2605.18855)
    """

    def __init__(self, plan: MixPlan) -> None:
        self.plan = plan
        self.routers = sum(plan.groups)
        self.group_of = [group for group, size in enumerate(plan.groups) for _ in range(size)]
        self.first_router = [sum(plan.groups[:group]) for group in range(len(plan.groups))]

    def for_pass(self, *, record: bool) -> DepthMixer:
        """The mixer that does a pass which begins now: itself, or one of those it is made of."""
        return self

    def start(self, keys: Tensor, *, record: bool) -> MixState:
        """An empty bank. keys: [R, D]; record: will the weights be asked for?"""
        return MixState(keys=keys)

    def append(self, state: MixState, source: Tensor, *, next_router: int) -> None:
        """Remember a source [..., D], which next_router and those after it can read."""
        raise NotImplementedError

    def read(
        self,
        state: MixState,
        router: int,
        stream: Tensor,
        rule: ReadRule,
        *,
        running: Tensor | None,
        record: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """The read [..., D] in the stream's dtype, and the weights [..., n] if record is set."""
        raise NotImplementedError


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Autocast would run products in half precision, where scores of near-equal sources tie."""
    if torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def exact_keys(keys: Tensor) -> Tensor:
    """The keys in the dtype in which scores are computed."""
    return keys.to(exact_dtype(keys))


def exact_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype in which scores and sums are computed."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
