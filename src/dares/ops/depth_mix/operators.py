"""The large products as operators that torch.compile takes whole, gradients and all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dares.ops.depth_mix import products
from dares.ops.depth_mix.products import combine


@torch.library.custom_op("dares::score", mutates_args=())
def score(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """source [N, D], keys [R, D] -> scores [N, R] and 1/rms [N]"""
    return products.score(source, keys, eps)


@score.register_fake
def _(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    tokens = source.shape[0]
    return keys.new_empty(tokens, keys.shape[0]), keys.new_empty(tokens)


@torch.library.custom_op("dares::score_backward", mutates_args=())
def score_backward(
    grad: Tensor, source: Tensor, keys: Tensor, scores: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    """d source [N, D] and d keys [R, D]"""
    d_source, d_keys = torch.zeros_like(source, dtype=keys.dtype), torch.zeros_like(keys)
    d_source = products.score_gradients(
        grad, source, keys, scores, inverse_rms, d_source=d_source, d_keys=d_keys
    )
    return d_source.to(source.dtype), d_keys


@score_backward.register_fake
def _(
    grad: Tensor, source: Tensor, keys: Tensor, scores: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(source), torch.empty_like(keys)


def _score_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    source, keys, _ = inputs
    ctx.save_for_backward(source, keys, *output)


def _score_grad(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    return *score_backward(grad, *ctx.saved_tensors), None


score.register_autograd(_score_grad, setup_context=_score_setup)


def weighted_sums(softmax: Tensor, sources: list[Tensor]) -> tuple[Tensor, ...]:
    """softmax [n, N, G], n sources [N, D] -> G centred sums and the plain sum, each [N, D]"""
    return _weighted_sums(softmax, sources).unbind(1)


@torch.library.custom_op("dares::weighted_sums", mutates_args=())
def _weighted_sums(softmax: Tensor, sources: list[Tensor]) -> Tensor:
    return products.weighted_sums(softmax, torch.stack(sources))


@_weighted_sums.register_fake
def _(softmax: Tensor, sources: list[Tensor]) -> Tensor:
    _, tokens, routers = softmax.shape
    return softmax.new_empty(tokens, routers + 1, sources[0].shape[1])


@torch.library.custom_op("dares::weighted_sums_backward", mutates_args=())
def weighted_sums_backward(
    grad: Tensor, softmax: Tensor, sources: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """d softmax [n, N, G] and d sources [n, N, D]"""
    stacked = torch.stack(sources)
    d_sources = torch.zeros_like(stacked, dtype=softmax.dtype)
    d_sums = grad.transpose(0, 1)
    d_softmax = products.weighted_sums_gradients(d_sums, softmax, stacked, d_sources=d_sources)
    return d_softmax.contiguous(), d_sources.to(stacked.dtype)  # strides as the fake one says


@weighted_sums_backward.register_fake
def _(grad: Tensor, softmax: Tensor, sources: list[Tensor]) -> tuple[Tensor, Tensor]:
    return softmax.new_empty(softmax.shape), sources[0].new_empty(len(sources), *sources[0].shape)


def _sums_setup(ctx: Any, inputs: tuple[Tensor, list[Tensor]], output: Tensor) -> None:
    softmax, sources = inputs
    ctx.save_for_backward(softmax, *sources)


def _sums_grad(ctx: Any, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    softmax, *sources = ctx.saved_tensors
    d_softmax, d_sources = weighted_sums_backward(grad, softmax, sources)
    return d_softmax, list(d_sources.unbind())


_weighted_sums.register_autograd(_sums_grad, setup_context=_sums_setup)

__all__ = ["combine", "score", "weighted_sums"]
