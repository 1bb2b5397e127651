"""The large operations as Triton kernels: score, weighted_sums and combine, with their gradients.

Each is an operator with a fake and an autograd implementation: torch.compile takes it whole.
Everything that is added up is added in float32 and in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dares.ops.depth_mix.triton.addresses import addresses_of
from dares.ops.depth_mix.triton.read_kernels import read_backward_launch, read_launch
from dares.ops.depth_mix.triton.score_kernels import (
    score_d_keys_launch,
    score_d_keys_parts,
    score_d_source_launch,
    score_launch,
)
from dares.ops.depth_mix.triton.sums_kernels import (
    d_sources_dtype,
    sums_backward_launches,
    sums_launch,
)

# -- score -----------------------------------------------------------------------------------------


@torch.library.custom_op("dares::triton_score", mutates_args=())
def score(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """source [N, D], keys [R, D] -> scores [N, R] and 1/rms [N]"""
    source, keys = source.contiguous(), keys.contiguous()
    scores, inverse_rms = keys.new_empty(len(source), len(keys)), keys.new_empty(len(source))
    score_launch(source, keys, scores, inverse_rms, eps).run()
    return scores, inverse_rms


@score.register_fake
def _(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    tokens = source.shape[0]
    return keys.new_empty(tokens, keys.shape[0]), keys.new_empty(tokens)


@torch.library.custom_op("dares::triton_score_backward", mutates_args=())
def score_backward(
    grad: Tensor, source: Tensor, keys: Tensor, scores: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    """d source [N, D] and d keys [R, D]"""
    source, keys = source.contiguous(), keys.contiguous()
    tokens, width = source.shape
    scaled = grad * inverse_rms.unsqueeze(-1)
    along = (grad * scores).sum(-1) * inverse_rms.square() / width
    d_source = torch.empty_like(source)
    d_keys = keys.new_empty(score_d_keys_parts(tokens, width), *keys.shape)
    score_d_source_launch(source, keys, scaled, along, d_source).run()
    score_d_keys_launch(source, scaled, d_keys).run()
    return d_source, d_keys.sum(0)


@score_backward.register_fake
def _(
    grad: Tensor, source: Tensor, keys: Tensor, scores: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    return source.new_empty(source.shape), keys.new_empty(keys.shape)


def _score_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    source, keys, _ = inputs
    ctx.save_for_backward(source, keys, *output)


def _score_grad(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
    return *score_backward(grad, *ctx.saved_tensors), None


score.register_autograd(_score_grad, setup_context=_score_setup)

# -- the old sources' sums ---------------------------------------------------------------------


@torch.library.custom_op("dares::triton_weighted_sums", mutates_args=())
def weighted_sums(softmax: Tensor, sources: list[Tensor]) -> list[Tensor]:
    """softmax [n, N, G], n sources [N, D] -> G centred sums and the plain sum, each [N, D]"""
    softmax, sources = softmax.contiguous(), _contiguous(sources)
    sums = [softmax.new_empty(sources[0].shape) for _ in range(softmax.shape[-1] + 1)]
    sums_launch(softmax, addresses_of(sources), addresses_of(sums)).run()
    return sums


@weighted_sums.register_fake
def _(softmax: Tensor, sources: list[Tensor]) -> list[Tensor]:
    return [softmax.new_empty(sources[0].shape) for _ in range(softmax.shape[-1] + 1)]


@torch.library.custom_op("dares::triton_weighted_sums_backward", mutates_args=())
def weighted_sums_backward(
    grads: list[Tensor], softmax: Tensor, sources: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """d softmax [n, N, G] and d sources [n, N, D]"""
    grads, softmax, sources = _contiguous(grads), softmax.contiguous(), _contiguous(sources)
    d_softmax = torch.empty_like(softmax)
    dtype = sources[0].dtype
    d_sources = sources[0].new_empty(
        len(sources), *sources[0].shape, dtype=d_sources_dtype(softmax.shape[-1], dtype)
    )
    for launch in sums_backward_launches(
        softmax, addresses_of(sources), addresses_of(grads), d_softmax, d_sources
    ):
        launch.run()
    return d_softmax, d_sources.to(dtype)


@weighted_sums_backward.register_fake
def _(grads: list[Tensor], softmax: Tensor, sources: list[Tensor]) -> tuple[Tensor, Tensor]:
    return softmax.new_empty(softmax.shape), sources[0].new_empty(len(sources), *sources[0].shape)


def _sums_setup(ctx: Any, inputs: tuple[Tensor, list[Tensor]], output: list[Tensor]) -> None:
    softmax, sources = inputs
    ctx.save_for_backward(softmax, *sources)


def _sums_grad(ctx: Any, grads: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    softmax, *sources = ctx.saved_tensors
    d_softmax, d_sources = weighted_sums_backward(list(grads), softmax, sources)
    return d_softmax, list(d_sources.unbind())


weighted_sums.register_autograd(_sums_grad, setup_context=_sums_setup)

# -- a site's read -----------------------------------------------------------------------------


def combine(stream: Tensor, keep: float, coefficients: Tensor, terms: Sequence[Tensor]) -> Tensor:
    """r = keep * h + sum_j c_j t_j.   stream [N, D], coefficients [N, 2 + k]

    The terms [N, D] are the mix and the plain sum of the old sources, and k young ones.
    """
    mix, plain, *young = terms
    return read(stream, keep, coefficients, mix, plain, young)


@torch.library.custom_op("dares::triton_read", mutates_args=())
def read(
    stream: Tensor,
    keep: float,
    coefficients: Tensor,
    mix: Tensor,
    plain: Tensor,
    young: list[Tensor],
) -> Tensor:
    """The operator of `combine`."""
    stream, coefficients = stream.contiguous(), coefficients.contiguous()
    young = _contiguous(young or [mix])  # a table is never empty; no coefficient, no read of it
    out = torch.empty_like(stream)
    read_launch(
        stream,
        keep,
        coefficients,
        mix.contiguous(),
        plain.contiguous(),
        addresses_of(young),
        out,
    ).run()
    return out


@read.register_fake
def _(
    stream: Tensor,
    keep: float,
    coefficients: Tensor,
    mix: Tensor,
    plain: Tensor,
    young: list[Tensor],
) -> Tensor:
    return stream.new_empty(stream.shape)


@torch.library.custom_op("dares::triton_read_backward", mutates_args=())
def read_backward(
    grad: Tensor, coefficients: Tensor, mix: Tensor, plain: Tensor, young: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """d coefficients [N, 2 + k], d mix and d plain sum [N, D], d young [k, N, D]"""
    grad, coefficients = grad.contiguous(), coefficients.contiguous()
    d_coefficients = torch.empty_like(coefficients)
    d_mix, d_plain = mix.new_empty(mix.shape), plain.new_empty(plain.shape)
    kind = young[0] if young else mix
    d_young = kind.new_empty(len(young), *mix.shape)
    read_backward_launch(
        grad,
        coefficients,
        mix.contiguous(),
        plain.contiguous(),
        addresses_of(_contiguous(young or [mix])),
        d_coefficients,
        d_mix,
        d_plain,
        d_young,
    ).run()
    return d_coefficients, d_mix, d_plain, d_young


@read_backward.register_fake
def _(
    grad: Tensor, coefficients: Tensor, mix: Tensor, plain: Tensor, young: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    kind = young[0] if young else mix
    return (
        coefficients.new_empty(coefficients.shape),
        mix.new_empty(mix.shape),
        plain.new_empty(plain.shape),
        kind.new_empty(len(young), *mix.shape),
    )


def _read_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.keep, coefficients, mix, plain, young = inputs
    ctx.save_for_backward(coefficients, mix, plain, *young)


def _read_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    coefficients, mix, plain, *young = ctx.saved_tensors
    d_coefficients, d_mix, d_plain, d_young = read_backward(grad, coefficients, mix, plain, young)
    d_stream = stream_gradient(grad, ctx.keep)
    return d_stream, None, d_coefficients, d_mix, d_plain, list(d_young.unbind())


def stream_gradient(grad: Tensor, keep: float) -> Tensor | None:
    """d stream of a read."""
    return grad if keep == 1 else grad * keep if keep else None


read.register_autograd(_read_grad, setup_context=_read_setup)


def _contiguous(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]
