"""The products that grouped depth mixing is made of, and their gradients. No autograd here.

Shapes: N tokens, D width, R routers, n old sources, G routers of a group.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 19


def score(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Z = u K^T / rms(u).   source [N, D], keys [R, D] -> scores [N, R] and 1/rms [N]"""
    exact = source.to(keys.dtype)
    norm = torch.linalg.vector_norm(exact, dim=-1)
    inverse_rms = norm.square_().div_(exact.shape[-1]).add_(eps).rsqrt_()
    return (exact @ keys.T).mul_(inverse_rms.unsqueeze(-1)), inverse_rms


def score_gradients(
    d_scores: Tensor,
    source: Tensor,
    keys: Tensor,
    scores: Tensor,
    inverse_rms: Tensor,
    *,
    d_source: Tensor,
    d_keys: Tensor,
) -> Tensor:
    """d_source += (dZ / rms) K - u (dZ . Z) / (D rms^2);   d_keys += (dZ / rms)^T u

    Both in place; returns d_source.
    """
    exact = source.to(keys.dtype)
    scaled = d_scores * inverse_rms.unsqueeze(-1)
    along = (scaled * scores).sum(-1, keepdim=True).mul_(inverse_rms.unsqueeze(-1))
    d_keys.addmm_(scaled.T, exact)
    return d_source.addmm_(scaled, keys).addcmul_(exact, along, value=-1 / exact.shape[-1])


def softmax_over_old(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """scores [n, N, G] -> softmax over n, the largest score and sum exp(score - largest) [N, G]"""
    top = scores.amax(0)
    exponents = (scores - top).exp_()
    total = exponents.sum(0)
    return exponents.div_(total), top, total


def weighted_sums(softmax: Tensor, sources: Tensor, out: Tensor | None = None) -> Tensor:
    """M_g = sum_i (p_gi - 1/n) u_i for each g, and last sum_i u_i

    softmax [n, N, G], sources [n, N, D] -> [N, G + 1, D], in the softmax's dtype.
    """
    weights, by_token = _sum_weights(softmax), sources.transpose(0, 1)
    tokens, routers, _ = weights.shape
    if out is None:
        out = weights.new_empty(tokens, routers, sources.shape[-1])
    if sources.dtype == weights.dtype:
        return torch.bmm(weights, by_token, out=out)
    for at in _token_blocks(by_token):
        torch.bmm(weights[at], by_token[at].to(weights.dtype), out=out[at])
    return out


def weighted_sums_gradients(
    d_sums: Tensor, softmax: Tensor, sources: Tensor, *, d_sources: Tensor
) -> Tensor:
    """dp_gi = dM_g . u_i [n, N, G];   du_i += sum_g (p_gi - 1/n) dM_g + d(sum) [n, N, D]

    d_sums [G + 1, N, D]: one site writes each, so that one is in one piece here.
    """
    weights = _sum_weights(softmax)
    return products_with(d_sums, weights, sources, d_sources=d_sources, add=True)[..., :-1]


def products_with(
    grads: Tensor, weights: Tensor, sources: Tensor, *, d_sources: Tensor, add: bool
) -> Tensor:
    """dots_ik = u_i . grad_k [n, N, K];   du_i += sum_k weights_ki grad_k  (= unless add)

    grads [K, N, D], weights [N, K, n], sources and d_sources [n, N, D].
    A few tokens at a time, so that what is in between stays in a core's cache.
    """
    by_token, by_weight = sources.transpose(0, 1), weights.transpose(1, 2)
    dots = grads.new_empty(len(sources), grads.shape[1], len(grads))
    for at in _token_blocks(by_token):
        grad, exact = grads[:, at].transpose(0, 1), by_token[at].to(weights.dtype)
        dots[:, at] = torch.bmm(exact, grad.transpose(1, 2)).transpose(0, 1)
        product = torch.bmm(by_weight[at], grad).transpose(0, 1)
        if add:
            d_sources[:, at] += product
        else:
            d_sources[:, at] = product
    return dots


def _sum_weights(softmax: Tensor) -> Tensor:
    """[n, N, G] -> [N, G + 1, n]: the centred weights, and a row of ones"""
    centred = softmax - 1 / softmax.shape[0]
    return torch.cat([centred, torch.ones_like(softmax[..., :1])], -1).permute(1, 2, 0)


def _token_blocks(by_token: Tensor) -> list[slice]:
    tokens, n, width = by_token.shape
    step = max(1, BLOCK_ELEMENTS // (n * width))
    return [slice(first, first + step) for first in range(0, tokens, step)]


def combine(stream: Tensor, keep: float, coefficients: Tensor, terms: Sequence[Tensor]) -> Tensor:
    """r = keep * h + sum_j c_j t_j.   stream [N, D], coefficients [N, k], k terms [N, D]"""
    exact = stream.to(coefficients.dtype)
    columns = coefficients.unsqueeze(-1).unbind(1)
    if keep == 1:
        total = torch.addcmul(exact, terms[0], columns[0])
    elif keep:
        total = torch.addcmul(exact * keep, terms[0], columns[0])
    else:  # not zero times the stream, which may be infinite
        total = terms[0] * columns[0]
    for term, column in zip(terms[1:], columns[1:], strict=True):
        total.addcmul_(term, column)
    return total.to(stream.dtype)


def weigh(
    exponents: Tensor, old: int, young: int, n: int, *, centred: bool
) -> tuple[Tensor, Tensor]:
    """Weights and coefficients of a read.

    exponents     [N, 1 + young (+ 1)]: of the old together, of each young source, of the null one
    weights       the same over their sum: w, a_j
    coefficients  [N, 2 + young] of the old mix, the old sum and the young: w, b, a_j - 1/n with
                  b = w/n_old - 1/n if centred, else w, w/n_old, a_j
    """
    everything = exponents.sum(-1, keepdim=True)
    weights = exponents / everything
    mix, rest = weights[:, :1], weights[:, 1 : 1 + young]
    if not centred:
        return weights, torch.cat([mix, mix / old, rest], -1)
    # b, written so that it is exactly zero where every exponent is one
    plain = (exponents[:, :1] * n - everything * old) / (everything * (old * n))
    return weights, torch.cat([mix, plain, rest - 1 / n], -1)
