"""Depth mixing on a GPU: the functional mixer with Triton's operators, and what they refuse."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from dares.ops.depth_mix.functional import FunctionalGroup, FunctionalMixer
from dares.ops.depth_mix.interface import MixPlan
from dares.ops.depth_mix.triton import eager, operators
from dares.ops.depth_mix.triton.launch import INTERPRETED

MOST = 256  # sources or routers: the largest tile has a column for each router
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class TritonMixer(FunctionalMixer):
    """See DepthMixer and grouped.py; every large operation is one kernel.

    Inputs are float32, bfloat16 or float16, of any width; scores, softmax and sums are float32.
    """

    operators: ClassVar[Any] = operators

    def __init__(self, plan: MixPlan) -> None:
        super().__init__(plan)
        found = obstacle(plan)
        if found:
            raise ValueError(found)

    def append(self, state: Any, source: Tensor, *, next_router: int) -> None:
        _check_tensor(source)
        super().append(state, source.contiguous(), next_router=next_router)

    def _sum_old(self, softmax: Tensor, sources: list[Tensor]) -> tuple[list[Tensor], Any]:
        if torch.compiler.is_compiling():
            return super()._sum_old(softmax, sources)
        return eager.make_sums(softmax, sources)

    def _combine(
        self,
        group: FunctionalGroup,
        column: int,
        stream: Tensor,
        keep: float,
        coefficients: Tensor,
        young: list[Tensor],
    ) -> Tensor:
        young = _one_dtype(young)
        if torch.compiler.is_compiling():
            return super()._combine(group, column, stream, keep, coefficients, young)
        terms = [group.sums[column], group.sums[-1], *young]
        return eager.read(group.node, column, stream, keep, coefficients, terms)


def obstacle(plan: MixPlan) -> str | None:
    """Why a plan is too large for the kernels; None if it is not."""
    for count, kind in ((plan.sources, "sources"), (sum(plan.groups), "routers")):
        if count > MOST:
            return f'{count} {kind}; the triton backend takes {MOST}: use backend="grouped"'
    return None


def _one_dtype(tensors: list[Tensor]) -> list[Tensor]:
    """A kernel reads one dtype; under autocast an unfinished block can be wider than the others."""
    if not tensors:
        return []
    widest = torch.promote_types(tensors[0].dtype, tensors[-1].dtype)  # the unfinished one is last
    return [tensor.to(widest) for tensor in tensors]


def _check_tensor(source: Tensor) -> None:
    if source.dtype not in DTYPES:
        raise ValueError(
            f"the triton backend takes float32, bfloat16 and float16, got {source.dtype}: "
            'use backend="grouped"'
        )
    device = source.device.type
    if INTERPRETED and device != "cpu":
        raise ValueError(
            f"TRITON_INTERPRET=1 runs kernels on a CPU, and this tensor is on {device}: unset it"
        )
    if not INTERPRETED and device != "cuda":
        raise ValueError(
            f"the triton backend runs on a GPU, and this tensor is on {device}: use "
            'backend="grouped", or set TRITON_INTERPRET=1 before Python starts to try the kernels'
        )
