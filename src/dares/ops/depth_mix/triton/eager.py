"""Eager mode: a group's sums are not kept for the backward, they are made again.

They are float32 and one a router, more than the sources themselves. The first site whose backward
asks makes them for all sites of its group, and the sums' own backward, which comes after all sites,
drops them. (torch.compile decides itself what it keeps: there the operators stand alone.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dares.ops.depth_mix.triton import operators


class MakeSums(torch.autograd.Function):
    """operators.weighted_sums, with a node that can be asked for its result again."""

    @staticmethod
    def forward(ctx: Any, softmax: Tensor, *sources: Tensor) -> tuple[Tensor, ...]:
        ctx.unpacked, ctx.again = None, None
        ctx.save_for_backward(softmax, *sources)
        return tuple(operators.weighted_sums(softmax, list(sources)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        softmax, *sources = _unpacked(ctx)
        ctx.unpacked, ctx.again = None, None
        d_softmax, d_sources = operators.weighted_sums_backward(list(grads), softmax, sources)
        return d_softmax, *d_sources.unbind()


def _unpacked(node: Any) -> tuple[Tensor, ...]:
    """What the sums' node saved; unpacked once, since checkpointing allows no more."""
    if node.unpacked is None:
        node.unpacked = node.saved_tensors
    return node.unpacked


def _sums_again(node: Any) -> list[Tensor]:
    if node.again is None:
        softmax, *sources = _unpacked(node)
        node.again = operators.weighted_sums(softmax, sources)
    return node.again


class Read(torch.autograd.Function):
    """operators.combine, which keeps the coefficients and the young sources alone."""

    @staticmethod
    def forward(
        ctx: Any,
        node: Any,
        column: int,
        keep: float,
        stream: Tensor,
        coefficients: Tensor,
        mix: Tensor,
        plain: Tensor,
        *young: Tensor,
    ) -> Tensor:
        ctx.node, ctx.column, ctx.keep = node, column, keep
        kept = [mix, plain] if node is None else []
        ctx.save_for_backward(coefficients, *kept, *young)
        return operators.combine(stream, keep, coefficients, [mix, plain, *young])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        d_stream = operators.stream_gradient(grad, ctx.keep)
        if not any(ctx.needs_input_grad[4:]):
            return None, None, None, d_stream, *[None] * len(ctx.needs_input_grad[4:])
        coefficients, *terms = ctx.saved_tensors
        if ctx.node is not None:
            sums = _sums_again(ctx.node)
            terms = [sums[ctx.column], sums[-1], *terms]
        mix, plain, *young = terms
        d_coefficients, d_mix, d_plain, d_young = operators.read_backward(
            grad, coefficients, mix, plain, young
        )
        return None, None, None, d_stream, d_coefficients, d_mix, d_plain, *d_young.unbind()


def make_sums(softmax: Tensor, sources: list[Tensor]) -> tuple[list[Tensor], Any]:
    """The sums, and their node for `read`; None if they have no gradient."""
    sums = MakeSums.apply(softmax, *sources)
    return list(sums), sums[0].grad_fn


def read(
    node: Any,
    column: int,
    stream: Tensor,
    keep: float,
    coefficients: Tensor,
    terms: list[Tensor],
) -> Tensor:
    """operators.combine for that router of the group whose sums the node made."""
    return Read.apply(node, column, keep, stream, coefficients, *terms)
