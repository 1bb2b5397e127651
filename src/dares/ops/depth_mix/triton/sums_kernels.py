"""Kernels: the old sources' sums for all routers of a group, each source read once.

Products run on tensor cores as three of tf32, which is as exact as float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dares.ops.depth_mix.triton.addresses import Addresses, row_pointers
from dares.ops.depth_mix.triton.launch import ROWS, Launch, power_of_two

ROUTERS_AT_ONCE = 32  # in the backward, where more would not fit into registers


@triton.jit
def centred_weights(
    softmax: tl.tensor,
    row: tl.tensor,
    router: tl.tensor,
    token: tl.tensor,
    n: tl.tensor,
    tokens: tl.tensor,
    routers: tl.tensor,
    share: tl.tensor,
) -> tl.tensor:
    """p - 1/n of a token, for row x router in the shape of their product; zero outside."""
    inside = (row < n) & (router < routers)
    at = (row.to(tl.int64) * tokens + token) * routers + router
    return tl.where(inside, tl.load(softmax + at, mask=inside, other=0.0) - share, 0.0)


@triton.jit
def sums_kernel(
    softmax: tl.tensor,
    source: tl.tensor,
    sources: tl.tensor,
    sum: tl.tensor,
    sums: tl.tensor,
    n: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    routers: tl.tensor,
    share: tl.tensor,
    blocks: tl.tensor,
    unit: tl.constexpr,
    sums_unit: tl.constexpr,
    rows: tl.constexpr,
    block_routers: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """M_g = sum_i (p_gi - 1/n) u_i for each g, and last sum_i u_i

    softmax [n, N, G], n sources [N, D] -> G + 1 sums [N, D]; share is 1/n.
    A program has one token, all routers, and one of `blocks` blocks of columns.
    """
    token = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks) * block_width + tl.arange(0, block_width)
    router = tl.arange(0, block_routers)
    at = token * width + column
    mixes = tl.full((block_routers, block_width), 0.0, tl.float32)
    plain = tl.full((block_width,), 0.0, tl.float32)
    for first in range(0, n, rows):
        row = first + tl.arange(0, rows)
        weights = centred_weights(
            softmax, row[None, :], router[:, None], token, n, tokens, routers, share
        )
        u = tl.load(
            row_pointers(source, sources, row, n, unit)[:, None] + at[None, :],
            mask=(row[:, None] < n) & (column[None, :] < width),
            other=0.0,
        ).to(tl.float32)
        mixes = tl.dot(weights, u, mixes, input_precision="tf32x3")
        plain += tl.sum(u, 0)
    tl.store(
        row_pointers(sum, sums, router, routers, sums_unit)[:, None] + at[None, :],
        mixes,
        mask=(router[:, None] < routers) & (column[None, :] < width),
    )
    last = row_pointers(sum, sums, routers, routers + 1, sums_unit)
    tl.store(last + at, plain, mask=column < width)


@triton.jit
def sums_backward_kernel(
    softmax: tl.tensor,
    source: tl.tensor,
    sources: tl.tensor,
    d_sum: tl.tensor,
    d_sums: tl.tensor,
    d_softmax: tl.tensor,
    d_sources: tl.tensor,
    n: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    routers: tl.tensor,
    first_router: tl.tensor,
    share: tl.tensor,
    blocks: tl.tensor,
    begins: tl.constexpr,
    unit: tl.constexpr,
    d_unit: tl.constexpr,
    rows: tl.constexpr,
    block_routers: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """dp_gi = dM_g . u_i,   du_i = sum_g (p_gi - 1/n) dM_g + d(sum)

    G + 1 d_sums [N, D] -> d_softmax [n, N, G], d_sources [n, N, D]; share is 1/n.
    A program has one token, one of `blocks` blocks of sources, and all columns in turn. A launch
    has some of the routers: the first begins du with d(sum), the others add to it.
    """
    token = (tl.program_id(0) // blocks).to(tl.int64)
    row = (tl.program_id(0) % blocks) * rows + tl.arange(0, rows)
    router = first_router + tl.arange(0, block_routers)
    weights = centred_weights(
        softmax, row[:, None], router[None, :], token, n, tokens, routers, share
    )
    u_at = row_pointers(source, sources, row, n, unit)[:, None]
    d_mix_at = row_pointers(d_sum, d_sums, router, routers, d_unit)[:, None]
    d_plain_at = row_pointers(d_sum, d_sums, routers, routers + 1, d_unit)
    d_u_at = d_sources + (row.to(tl.int64)[:, None] * tokens + token) * width
    products = tl.full((rows, block_routers), 0.0, tl.float32)
    for first in range(0, width, block_width):
        column = first + tl.arange(0, block_width)
        at = token * width + column
        inside = (row[:, None] < n) & (column[None, :] < width)
        u = tl.load(u_at + at[None, :], mask=inside, other=0.0).to(tl.float32)
        d_mix = tl.load(
            d_mix_at + at[None, :],
            mask=(router[:, None] < routers) & (column[None, :] < width),
            other=0.0,
        )
        products = tl.dot(u, tl.trans(d_mix), products, input_precision="tf32x3")
        d_u = tl.dot(weights, d_mix, input_precision="tf32x3")
        if begins:
            d_u += tl.load(d_plain_at + at, mask=column < width, other=0.0)[None, :]
        else:
            d_u += tl.load(d_u_at + column[None, :], mask=inside, other=0.0)
        tl.store(d_u_at + column[None, :], d_u.to(d_sources.dtype.element_ty), mask=inside)
    tl.store(
        d_softmax + (row.to(tl.int64)[:, None] * tokens + token) * routers + router[None, :],
        products,
        mask=(row[:, None] < n) & (router[None, :] < routers),
    )


def sums_launch(softmax: Tensor, sources: Addresses, sums: Addresses) -> Launch:
    """How sums_kernel is launched."""
    (n, tokens, routers), width = softmax.shape, sources.first.shape[-1]
    block_routers = power_of_two(routers, least=16, most=256)
    block_width = max(16, 2048 // block_routers)
    blocks = triton.cdiv(width, block_width)
    return Launch(
        sums_kernel,
        (tokens * blocks,),
        {
            "softmax": softmax,
            "source": sources.first,
            "sources": sources.table,
            "sum": sums.first,
            "sums": sums.table,
            "n": n,
            "tokens": tokens,
            "width": width,
            "routers": routers,
            "share": 1 / n,
            "blocks": blocks,
        },
        {
            "unit": sources.unit,
            "sums_unit": sums.unit,
            "rows": ROWS,
            "block_routers": block_routers,
            "block_width": block_width,
        },
        warps=4 if block_routers < 256 else 8,
    )


def d_sources_dtype(routers: int, dtype: torch.dtype) -> torch.dtype:
    """The dtype to gather d_sources in: float32 if more than one launch adds to them."""
    return dtype if routers <= ROUTERS_AT_ONCE else torch.float32


def sums_backward_launches(
    softmax: Tensor, sources: Addresses, d_sums: Addresses, d_softmax: Tensor, d_sources: Tensor
) -> list[Launch]:
    """How sums_backward_kernel is launched, in this order."""
    (n, tokens, routers), width = softmax.shape, d_sources.shape[-1]
    blocks = triton.cdiv(n, ROWS)
    return [
        Launch(
            sums_backward_kernel,
            (tokens * blocks,),
            {
                "softmax": softmax,
                "source": sources.first,
                "sources": sources.table,
                "d_sum": d_sums.first,
                "d_sums": d_sums.table,
                "d_softmax": d_softmax,
                "d_sources": d_sources,
                "n": n,
                "tokens": tokens,
                "width": width,
                "routers": routers,
                "first_router": first_router,
                "share": 1 / n,
                "blocks": blocks,
            },
            {
                "begins": first_router == 0,
                "unit": sources.unit,
                "d_unit": d_sums.unit,
                "rows": ROWS,
                "block_routers": power_of_two(routers, least=16, most=ROUTERS_AT_ONCE),
                "block_width": 32,
            },
        )
        for first_router in range(0, routers, ROUTERS_AT_ONCE)
    ]
