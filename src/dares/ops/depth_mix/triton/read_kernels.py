"""Kernels: a site's read, the stream and every term in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dares.ops.depth_mix.triton.addresses import Addresses, row_pointers
from dares.ops.depth_mix.triton.launch import ROWS, Launch, power_of_two


@triton.jit
def read_kernel(
    h: tl.tensor,
    coefficients: tl.tensor,
    mix: tl.tensor,
    plain: tl.tensor,
    first_young: tl.tensor,
    young: tl.tensor,
    read: tl.tensor,
    keep: tl.tensor,
    count: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    kept: tl.constexpr,
    unit: tl.constexpr,
    rows: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """r = keep * h + c_0 M + c_1 S + sum_j c_(2 + j) u_j

    h, read [N, D], coefficients [N, 2 + k], mix and plain sum [N, D], young k x [N, D].
    A program has one token and one of `blocks` blocks of columns.
    """
    token = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * block_width + tl.arange(0, block_width)
    inside = column < width
    at = token * width + column
    own = coefficients + token * (2 + count)
    total = tl.load(own) * tl.load(mix + at, mask=inside, other=0.0)
    total += tl.load(own + 1) * tl.load(plain + at, mask=inside, other=0.0)
    if kept:  # not zero times the stream, which may be infinite
        total += keep * tl.load(h + at, mask=inside, other=0.0).to(tl.float32)
    for first in range(0, count, rows):
        row = first + tl.arange(0, rows)
        c = tl.load(own + 2 + row, mask=row < count, other=0.0)
        u = tl.load(
            row_pointers(first_young, young, row, count, unit)[:, None] + at[None, :],
            mask=(row[:, None] < count) & inside[None, :],
            other=0.0,
        ).to(tl.float32)
        total += tl.sum(c[:, None] * u, 0)
    tl.store(read + at, total.to(read.dtype.element_ty), mask=inside)


@triton.jit
def read_backward_kernel(
    grad: tl.tensor,
    coefficients: tl.tensor,
    mix: tl.tensor,
    plain: tl.tensor,
    first_young: tl.tensor,
    young: tl.tensor,
    d_coefficients: tl.tensor,
    d_mix: tl.tensor,
    d_plain: tl.tensor,
    d_young: tl.tensor,
    count: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    unit: tl.constexpr,
    rows: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """dc_j = dr . t_j,   dt_j = c_j dr   for the mix M, the plain sum S and the young u_j

    grad [N, D] -> d_coefficients [N, 2 + k], d_mix and d_plain [N, D], d_young [k, N, D].
    A program has one token, one of `blocks` blocks of the young, and all columns in turn; a token's
    first program has the mix and the plain sum too.
    """
    token = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    row = block * rows + tl.arange(0, rows)
    own = token * (2 + count)
    c_mix, c_plain = tl.load(coefficients + own), tl.load(coefficients + own + 1)
    c = tl.load(coefficients + own + 2 + row, mask=row < count, other=0.0)
    u_at = row_pointers(first_young, young, row, count, unit)[:, None]
    dot_mix = tl.full((block_width,), 0.0, tl.float32)
    dot_plain = tl.full((block_width,), 0.0, tl.float32)
    dots = tl.full((rows, block_width), 0.0, tl.float32)
    for first in range(0, width, block_width):
        column = first + tl.arange(0, block_width)
        inside = column < width
        at = token * width + column
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        if block == 0:
            dot_mix += g * tl.load(mix + at, mask=inside, other=0.0)
            dot_plain += g * tl.load(plain + at, mask=inside, other=0.0)
            tl.store(d_mix + at, c_mix * g, mask=inside)
            tl.store(d_plain + at, c_plain * g, mask=inside)
        there = (row[:, None] < count) & inside[None, :]
        u = tl.load(u_at + at[None, :], mask=there, other=0.0).to(tl.float32)
        dots += u * g[None, :]
        tl.store(
            d_young + row.to(tl.int64)[:, None] * tokens * width + at[None, :],
            (c[:, None] * g[None, :]).to(d_young.dtype.element_ty),
            mask=there,
        )
    if block == 0:
        tl.store(d_coefficients + own, tl.sum(dot_mix))
        tl.store(d_coefficients + own + 1, tl.sum(dot_plain))
    tl.store(d_coefficients + own + 2 + row, tl.sum(dots, 1), mask=row < count)


def read_launch(
    stream: Tensor,
    keep: float,
    coefficients: Tensor,
    mix: Tensor,
    plain: Tensor,
    young: Addresses,
    read: Tensor,
) -> Launch:
    """How read_kernel is launched."""
    (tokens, width), count = stream.shape, coefficients.shape[1] - 2
    block_width = power_of_two(width, least=16, most=512)
    blocks = triton.cdiv(width, block_width)
    return Launch(
        read_kernel,
        (tokens * blocks,),
        {
            "h": stream,
            "coefficients": coefficients,
            "mix": mix,
            "plain": plain,
            "first_young": young.first,
            "young": young.table,
            "read": read,
            "keep": keep,
            "count": count,
            "width": width,
            "blocks": blocks,
        },
        {
            "kept": keep != 0,
            "unit": young.unit,
            "rows": power_of_two(count, least=1, most=ROWS),
            "block_width": block_width,
        },
    )


def read_backward_launch(
    grad: Tensor,
    coefficients: Tensor,
    mix: Tensor,
    plain: Tensor,
    young: Addresses,
    d_coefficients: Tensor,
    d_mix: Tensor,
    d_plain: Tensor,
    d_young: Tensor,
) -> Launch:
    """How read_backward_kernel is launched."""
    (tokens, width), count = grad.shape, coefficients.shape[1] - 2
    rows = power_of_two(count, least=1, most=ROWS)
    blocks = max(1, triton.cdiv(count, rows))
    return Launch(
        read_backward_kernel,
        (tokens * blocks,),
        {
            "grad": grad,
            "coefficients": coefficients,
            "mix": mix,
            "plain": plain,
            "first_young": young.first,
            "young": young.table,
            "d_coefficients": d_coefficients,
            "d_mix": d_mix,
            "d_plain": d_plain,
            "d_young": d_young,
            "count": count,
            "tokens": tokens,
            "width": width,
            "blocks": blocks,
        },
        {
            "unit": young.unit,
            "rows": rows,
            "block_width": power_of_two(width, least=16, most=128),
        },
    )
