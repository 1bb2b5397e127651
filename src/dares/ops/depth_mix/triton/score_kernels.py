"""Kernels: one source against the keys of all later routers.

Products run on tensor cores as three of tf32, which is as exact as float32.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dares.ops.depth_mix.triton.launch import Launch, power_of_two

SUMMED_APART = 16384  # columns of partial sums, over all programs: no more, whatever N and D


@triton.jit
def score_kernel(
    source: tl.tensor,
    keys: tl.tensor,
    scores: tl.tensor,
    inverse_rms: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    routers: tl.tensor,
    eps: tl.tensor,
    block_tokens: tl.constexpr,
    block_routers: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """Z = u K^T / rms(u).   source [N, D], keys [R, D] -> scores [N, R], 1/rms [N]

    A program has a few tokens and all routers.
    """
    token = tl.program_id(0).to(tl.int64) * block_tokens + tl.arange(0, block_tokens)
    router = tl.arange(0, block_routers)
    product = tl.full((block_tokens, block_routers), 0.0, tl.float32)
    squares = tl.full((block_tokens,), 0.0, tl.float32)
    for first in range(0, width, block_width):
        column = first + tl.arange(0, block_width)
        u = tl.load(
            source + token[:, None] * width + column[None, :],
            mask=(token[:, None] < tokens) & (column[None, :] < width),
            other=0.0,
        ).to(tl.float32)
        key = tl.load(
            keys + router[None, :] * width + column[:, None],
            mask=(router[None, :] < routers) & (column[:, None] < width),
            other=0.0,
        )
        product = tl.dot(u, key, product, input_precision="tf32x3")
        squares += tl.sum(u * u, 1)
    inverse = tl.rsqrt(squares / width + eps)
    tl.store(inverse_rms + token, inverse, mask=token < tokens)
    tl.store(
        scores + token[:, None] * routers + router[None, :],
        product * inverse[:, None],
        mask=(token[:, None] < tokens) & (router[None, :] < routers),
    )


@triton.jit
def score_d_source_kernel(
    source: tl.tensor,
    keys: tl.tensor,
    scaled: tl.tensor,
    along: tl.tensor,
    d_source: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    routers: tl.tensor,
    blocks: tl.tensor,
    block_tokens: tl.constexpr,
    block_routers: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """du = S K - along u   with S = dZ / rms [N, R], along = dZ . Z / (D rms^2) [N]

    A program has a few tokens, one of `blocks` blocks of columns, and all routers in turn.
    """
    token = (tl.program_id(0) // blocks).to(tl.int64) * block_tokens + tl.arange(0, block_tokens)
    column = (tl.program_id(0) % blocks) * block_width + tl.arange(0, block_width)
    d_u = tl.full((block_tokens, block_width), 0.0, tl.float32)
    for first in range(0, routers, block_routers):
        router = first + tl.arange(0, block_routers)
        s = tl.load(
            scaled + token[:, None] * routers + router[None, :],
            mask=(token[:, None] < tokens) & (router[None, :] < routers),
            other=0.0,
        )
        key = tl.load(
            keys + router[:, None] * width + column[None, :],
            mask=(router[:, None] < routers) & (column[None, :] < width),
            other=0.0,
        )
        d_u = tl.dot(s, key, d_u, input_precision="tf32x3")
    inside = (token[:, None] < tokens) & (column[None, :] < width)
    at = token[:, None] * width + column[None, :]
    u = tl.load(source + at, mask=inside, other=0.0).to(tl.float32)
    d_u -= tl.load(along + token, mask=token < tokens, other=0.0)[:, None] * u
    tl.store(d_source + at, d_u.to(d_source.dtype.element_ty), mask=inside)


@triton.jit
def score_d_keys_kernel(
    source: tl.tensor,
    scaled: tl.tensor,
    d_keys: tl.tensor,
    tokens: tl.tensor,
    width: tl.tensor,
    routers: tl.tensor,
    share: tl.tensor,
    block_tokens: tl.constexpr,
    block_routers: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """dK = S^T u   with S = dZ / rms [N, R]

    A program has a few routers, a few columns, and `share` tokens in turn. It writes its own part
    of dK, [parts, R, D]: the parts are added afterwards, in one order.
    """
    router = tl.program_id(0) * block_routers + tl.arange(0, block_routers)
    column = tl.program_id(1) * block_width + tl.arange(0, block_width)
    part = tl.program_id(2).to(tl.int64)
    last = tl.minimum((part + 1) * share, tokens)
    d_key = tl.full((block_routers, block_width), 0.0, tl.float32)
    for first in range(part * share, last, block_tokens):
        token = first + tl.arange(0, block_tokens)
        s = tl.load(
            scaled + token[None, :] * routers + router[:, None],
            mask=(token[None, :] < last) & (router[:, None] < routers),
            other=0.0,
        )
        u = tl.load(
            source + token[:, None] * width + column[None, :],
            mask=(token[:, None] < last) & (column[None, :] < width),
            other=0.0,
        ).to(tl.float32)
        d_key = tl.dot(s, u, d_key, input_precision="tf32x3")
    tl.store(
        d_keys + (part * routers + router[:, None]) * width + column[None, :],
        d_key,
        mask=(router[:, None] < routers) & (column[None, :] < width),
    )


def score_launch(
    source: Tensor, keys: Tensor, scores: Tensor, inverse_rms: Tensor, eps: float
) -> Launch:
    """How score_kernel is launched."""
    (tokens, width), routers = source.shape, keys.shape[0]
    block_routers = power_of_two(routers, least=16, most=256)
    block_tokens = max(16, min(64, 1024 // block_routers))
    return Launch(
        score_kernel,
        (triton.cdiv(tokens, block_tokens),),
        {
            "source": source,
            "keys": keys,
            "scores": scores,
            "inverse_rms": inverse_rms,
            "tokens": tokens,
            "width": width,
            "routers": routers,
            "eps": eps,
        },
        {
            "block_tokens": block_tokens,
            "block_routers": block_routers,
            "block_width": 32 if block_routers < 128 else 16,
        },
        warps=4 if block_routers < 64 else 8,
    )


def score_d_source_launch(
    source: Tensor, keys: Tensor, scaled: Tensor, along: Tensor, d_source: Tensor
) -> Launch:
    """How score_d_source_kernel is launched."""
    (tokens, width), routers = source.shape, keys.shape[0]
    block_tokens, block_width = 32, 64
    blocks = triton.cdiv(width, block_width)
    return Launch(
        score_d_source_kernel,
        (triton.cdiv(tokens, block_tokens) * blocks,),
        {
            "source": source,
            "keys": keys,
            "scaled": scaled,
            "along": along,
            "d_source": d_source,
            "tokens": tokens,
            "width": width,
            "routers": routers,
            "blocks": blocks,
        },
        {"block_tokens": block_tokens, "block_routers": 16, "block_width": block_width},
    )


def score_d_keys_parts(tokens: int, width: int) -> int:
    """Into how many parts the tokens are cut for dK."""
    return max(1, min(SUMMED_APART // triton.next_power_of_2(width), triton.cdiv(tokens, 64)))


def score_d_keys_launch(source: Tensor, scaled: Tensor, d_keys: Tensor) -> Launch:
    """How score_d_keys_kernel is launched."""
    (tokens, width), (parts, routers, _) = source.shape, d_keys.shape
    block_routers = power_of_two(routers, least=16, most=32)
    block_width = 64
    return Launch(
        score_d_keys_kernel,
        (triton.cdiv(routers, block_routers), triton.cdiv(width, block_width), parts),
        {
            "source": source,
            "scaled": scaled,
            "d_keys": d_keys,
            "tokens": tokens,
            "width": width,
            "routers": routers,
            "share": triton.cdiv(tokens, parts),
        },
        {"block_tokens": 16, "block_routers": block_routers, "block_width": block_width},
    )
