"""(x / rms(x)) @ W, without ever making x / rms(x)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dares.ops.depth_mix.interface import without_autocast


def normed_product(x: Tensor, matrix: Tensor, eps: float) -> Tensor:
    """x / rms(x) over the last axis, times a matrix, in float32 (float64 for float64).

    x: [..., D];  matrix: [D, k], of few columns;  -> [..., k]
    """
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    matrix = matrix.to(exact.dtype)
    if torch.compiler.is_compiling():
        return (exact @ matrix) * _inverse_rms(exact, eps)
    with without_autocast(x.device.type):
        return _NormedProduct.apply(exact, matrix, eps)


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps).rsqrt()


class _NormedProduct(torch.autograd.Function):
    """Two passes over x forward, three backward, and nothing of its size kept but itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, eps: float) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = (length.square() / x.shape[-1] + eps).rsqrt()
        product = (x @ matrix) * inverse
        ctx.save_for_backward(x, matrix, inverse, product)
        return product

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, matrix, inverse, product = ctx.saved_tensors
        scaled = grad * inverse
        x_grad = matrix_grad = None
        if ctx.needs_input_grad[0]:
            along = (grad * product).sum(-1, keepdim=True) * inverse.square() / -x.shape[-1]
            x_grad = (scaled @ matrix.T).addcmul_(x, along)
        if ctx.needs_input_grad[1]:
            matrix_grad = x.reshape(-1, x.shape[-1]).T @ scaled.reshape(-1, scaled.shape[-1])
        return x_grad, matrix_grad, None
