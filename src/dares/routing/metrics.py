"""Numbers that say how a model routes, from the weights that a forward pass recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sharpness:
    """Means over sites and tokens."""

    largest: float  # the largest weight: 1 where a site reads one source alone
    entropy: float  # in nats: 0 there, log n where it reads all n alike


@torch.no_grad()
def sharpness(routing: Iterable[Tensor | None]) -> Sharpness | None:
    """How sharp the choice is; weights [..., n] a site, None where a site has no choice."""
    largest, entropy = [], []
    for weights in routing:
        if weights is None:
            continue
        largest.append(weights.amax(-1).mean())
        entropy.append(torch.special.entr(weights).sum(-1).mean())
    if not largest:
        return None
    return Sharpness(float(torch.stack(largest).mean()), float(torch.stack(entropy).mean()))
