"""The formula, readable: the oracle of every test."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def depth_mix(
    sources: Sequence[Tensor],
    key: Tensor,
    *,
    eps: float,
    null: bool = False,
    shift: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """mix = sum_i (a_i - shift) u_i,   a = softmax_i(key . u_i / rms(u_i))

    rms(u) = sqrt(mean(u^2) + eps)

    sources  n tensors u_i, each [..., D]
    key      [D], the query times the key norm's gain
    null     one more source, zero with score zero: it takes weight and gives nothing
    shift    taken from every weight before the sum, so that a bank that sums to h can be read as
             h/n + mix with shift 1/n, which is exactly h/n at uniform weights
    returns  mix [..., D] and the weights a [..., n (+1 with null)], both in float32
             (float64 for float64 sources)                                      (2605.18855)
    """
    exact = torch.float64 if sources[0].dtype == torch.float64 else torch.float32
    # autocast would run the products in half precision, where scores of near-equal sources tie
    with torch.autocast(sources[0].device.type, enabled=False):
        bank = torch.stack([source.to(exact) for source in sources])  # [n, ..., D]
        inverse_rms = (bank.square().mean(-1) + eps).rsqrt()  # [n, ...]
        scores = (bank @ key.to(exact)) * inverse_rms  # [n, ...]
        if null:
            scores = torch.cat([scores, torch.zeros_like(scores[:1])])
        weights = scores.softmax(0)
        mix = ((weights[: len(sources)] - shift).unsqueeze(-1) * bank).sum(0)
        return mix, weights.movedim(0, -1)
