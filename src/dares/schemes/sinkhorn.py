"""Sinkhorn's steps: a positive matrix made doubly stochastic, with the gradient of every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS, COLUMNS = 1, 0  # the axis of a matrix [n, n, tokens] along which each of them is summed
LEAST = 1e-30  # of an entry: a column that underflows whole must not be divided by zero


def sinkhorn(logits: Tensor, steps: int) -> Tensor:
    """exp(logits) with rows, then columns divided by their sums, that many times.

    logits: [..., n, n] -> [..., n, n]
    """
    # tokens last: with matrices of 4 x 4 a sum over one axis is then long enough to be fast
    entries = logits.reshape(-1, *logits.shape[-2:]).permute(1, 2, 0).contiguous()
    if torch.compiler.is_compiling():
        matrix = _begin(entries)
        for axis in _axes(steps):
            matrix = matrix / matrix.sum(axis, keepdim=True)
    else:
        matrix = _Sinkhorn.apply(entries, steps)
    return matrix.permute(2, 0, 1).reshape(logits.shape)


def _begin(logits: Tensor) -> Tensor:
    """The first step over rows. From here on every row and column has an entry of size."""
    return logits.softmax(ROWS).clamp_min(LEAST)


def _axes(steps: int) -> list[int]:
    return [COLUMNS, *[ROWS, COLUMNS] * (steps - 1)]


class _Sinkhorn(torch.autograd.Function):
    """Keeps the logits alone: the steps are cheap to run again, and many to keep."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, steps: int) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.steps = steps
        matrix = _begin(logits)
        for axis in _axes(steps):
            matrix /= matrix.sum(axis, keepdim=True)
        return matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (logits,) = ctx.saved_tensors
        matrix = _begin(logits)
        steps: list[tuple[Tensor, int, Tensor | None]] = [(matrix, ROWS, None)]
        for axis in _axes(ctx.steps):
            sums = matrix.sum(axis, keepdim=True)
            matrix = matrix / sums
            steps.append((matrix, axis, sums))
        for matrix, axis, total in reversed(steps):
            # y = x / sum(x):  dx = (dy - sum(dy * y)) / sum(x);  of a softmax, times x instead
            grad = grad - (grad * matrix).sum(axis, keepdim=True)
            grad = grad * matrix if total is None else grad / total
        return grad, None
