"""The three products that grouped depth mixing is made of, each with its gradient by hand.

    score          Z = (u K^T) / rms(u)             a source against all later routers at once
    weighted_sums  M_g = sum_i P_gi u_i             G sums over the same n sources, read once
    combine        r = keep * h + sum_j c_j t_j     a site's read from a few terms

Each saves its inputs and nothing else; the inputs are the sources themselves, so a source is kept
once however many routers read it. The autograd functions of eager mode are here; operators.py makes
operators of the same products for torch.compile.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Sources are stacked a block of tokens at a time, so that the copy stays in a core's cache and a
# long sequence needs no second bank in memory.
STACK_ELEMENTS = 1 << 20


# -- score ---------------------------------------------------------------------------------------


def score_forward(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """source [N, D], keys [R, D] -> scores [N, R] and 1/rms [N], in the keys' dtype."""
    exact = source.to(keys.dtype)
    norm = torch.linalg.vector_norm(exact, dim=-1)
    inverse_rms = (norm.square() / exact.shape[-1] + eps).rsqrt()
    return (exact @ keys.T).mul_(inverse_rms.unsqueeze(-1)), inverse_rms


def score_backward(
    grad: Tensor, source: Tensor, keys: Tensor, scores: Tensor, inverse_rms: Tensor
) -> tuple[Tensor, Tensor]:
    """d source = (1/rms) dZ K - u (dZ . Z) / (D rms^2),   d keys = (dZ / rms)^T u"""
    exact = source.to(keys.dtype)
    scaled = grad * inverse_rms.unsqueeze(-1)
    pull = (grad * scores).sum(-1).mul_(inverse_rms.square()).div_(exact.shape[-1])
    d_source = (scaled @ keys).addcmul_(exact, pull.unsqueeze(-1), value=-1)
    return d_source.to(source.dtype), scaled.T @ exact


class Score(torch.autograd.Function):
    """scores [N, R] of a source against the keys."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, keys: Tensor, eps: float) -> Tensor:
        scores, inverse_rms = score_forward(source, keys, eps)
        ctx.save_for_backward(source, keys, scores, inverse_rms)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return *score_backward(grad, *ctx.saved_tensors), None


# -- weighted sums -------------------------------------------------------------------------------


def _token_blocks(tokens: int, sources: int, width: int) -> list[slice]:
    step = max(1, STACK_ELEMENTS // (sources * width))
    return [slice(first, min(first + step, tokens)) for first in range(0, tokens, step)]


def _stack(sources: Sequence[Tensor], block: slice, dtype: torch.dtype) -> Tensor:
    return torch.stack([source[block] for source in sources], 1).to(dtype)  # [block, n, D]


def weighted_sums_forward(weights: Tensor, sources: Sequence[Tensor]) -> Tensor:
    """weights [N, G, n], n sources [N, D] -> sums [N, G, D], in the weights' dtype."""
    tokens, width = sources[0].shape
    sums = weights.new_empty(tokens, weights.shape[1], width)
    for block in _token_blocks(tokens, len(sources), width):
        torch.bmm(weights[block], _stack(sources, block, weights.dtype), out=sums[block])
    return sums


def weighted_sums_backward(
    grad: Tensor, weights: Tensor, sources: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """dP_gi = dM_g . u_i,   du_i = sum_g P_gi dM_g"""
    tokens, width = sources[0].shape
    d_weights = torch.empty_like(weights)
    d_sources = [torch.empty_like(source) for source in sources]
    for block in _token_blocks(tokens, len(sources), width):
        stacked = _stack(sources, block, weights.dtype)
        torch.bmm(grad[block], stacked.transpose(1, 2), out=d_weights[block])
        parts = torch.bmm(weights[block].transpose(1, 2), grad[block])
        for d_source, part in zip(d_sources, parts.unbind(1), strict=True):
            d_source[block] = part
    return d_weights, d_sources


class Recall:
    """Weighted sums are not kept for the backward: the first site that asks makes them again.

    The sums of a group are as large as its sources. All sites of the group ask for them before the
    sums' own backward, which is where they are dropped.
    """

    def __init__(self) -> None:
        self.node: Any = None
        self.saved: tuple[Tensor, ...] | None = None
        self.sums: Tensor | None = None

    def saved_tensors(self) -> tuple[Tensor, ...]:
        """What the sums' node saved; unpacked once, since checkpointing allows no more."""
        if self.saved is None:
            self.saved = self.node.saved_tensors
        return self.saved

    def __getitem__(self, index: int) -> Tensor:
        if self.sums is None:
            weights, *sources = self.saved_tensors()
            self.sums = weighted_sums_forward(weights, sources)
        return self.sums[:, index]

    def drop(self) -> None:
        """Forget what was unpacked and made again."""
        self.saved = self.sums = None


class WeightedSums(torch.autograd.Function):
    """G sums over n sources; recall makes them again in the backward."""

    @staticmethod
    def forward(ctx: Any, recall: Recall, weights: Tensor, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *sources)
        ctx.recall = weakref.ref(recall)  # a cycle would keep every source alive until collection
        recall.node = ctx
        return weighted_sums_forward(weights, sources)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        recall = ctx.recall()
        weights, *sources = recall.saved_tensors() if recall else ctx.saved_tensors
        if recall:
            recall.drop()
        d_weights, d_sources = weighted_sums_backward(grad.contiguous(), weights, sources)
        return None, d_weights, *d_sources


# -- combine -------------------------------------------------------------------------------------


def combine_forward(
    stream: Tensor, keep: float, coefficients: Tensor, terms: Sequence[Tensor]
) -> Tensor:
    """stream [N, D], coefficients [N, k], k terms [N, D] -> [N, D] in the stream's dtype."""
    exact = stream.to(coefficients.dtype)
    total = exact * keep if keep else torch.zeros_like(exact)  # zero times infinity is no zero
    for term, coefficient in zip(terms, coefficients.unsqueeze(-1).unbind(1), strict=True):
        total.addcmul_(term, coefficient)
    return total.to(stream.dtype)


class Combine(torch.autograd.Function):
    """A site's read. The first terms are the sums `recalled` of a group, the rest are sources."""

    @staticmethod
    def forward(
        ctx: Any,
        recall: Recall,
        recalled: tuple[int, ...],
        keep: float,
        stream: Tensor,
        coefficients: Tensor,
        *terms: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(coefficients, *terms[len(recalled) :])
        ctx.recall, ctx.recalled, ctx.keep, ctx.dtype = recall, recalled, keep, stream.dtype
        return combine_forward(stream, keep, coefficients, terms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        coefficients, *sources = ctx.saved_tensors
        terms = [*(ctx.recall[index] for index in ctx.recalled), *sources]
        exact = grad.to(coefficients.dtype)
        d_coefficients = torch.stack([(exact * term).sum(-1) for term in terms], -1)
        d_terms = [
            (coefficient * exact).to(term.dtype)
            for term, coefficient in zip(terms, coefficients.unsqueeze(-1).unbind(1), strict=True)
        ]
        d_stream = (ctx.keep * exact).to(ctx.dtype) if ctx.keep else None
        return None, None, None, d_stream, d_coefficients, *d_terms
