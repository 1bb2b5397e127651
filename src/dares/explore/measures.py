"""Numbers by which tokens are coloured: each one a token, from a pass over a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dares.explore.reading import Reading
from dares.routing import metrics


@dataclass(frozen=True)
class Measure:
    """of(now, plain) gives [T], NaN where a token has none; `plain` is with nothing off.

    routed  it is made of routing weights, which not every model has
    floor   where its colours begin; None: at the smallest value there is
    """

    title: str
    about: str
    of: Callable[[Reading, Reading], Tensor]
    routed: bool = False
    floor: float | None = None


def losses(now: Reading, plain: Reading) -> Tensor:
    """-log p(token | those before) in nats; the first token has none."""
    known = cross_entropy(now.logits[:-1], now.ids[1:], reduction="none")
    return torch.cat([known.new_full((1,), torch.nan), known])


def _uncertainty(now: Reading, plain: Reading) -> Tensor:
    return torch.stack([metrics.entropy(row.softmax(-1)) for row in now.logits])


def divergence(before: Tensor, after: Tensor) -> Tensor:
    """KL(before || after) in nats of what two rows of logits [vocabulary] predict."""
    # float64: one source less may move a distribution by 1e-6 nats
    first, second = (logits.double().log_softmax(-1) for logits in (before, after))
    return (first.exp() * (first - second)).sum().clamp(min=0)


def _change(now: Reading, plain: Reading) -> Tensor:
    # row by row, as above: a second copy of all logits would cost more than the pass
    return torch.stack([divergence(*rows) for rows in zip(plain.logits, now.logits, strict=True)])


def _mean_over_sites(of: Callable[[Tensor], Tensor], now: Reading, plain: Reading) -> Tensor:
    return torch.stack([of(weights) for weights in now.weights.values()]).mean(0)


def _share(now: Reading, plain: Reading) -> Tensor:
    return torch.stack(list(now.shares.values())).mean(0)


MEASURES = {
    "loss": Measure(
        "surprise",
        "How little the model expected this token: its loss, in nats.",
        losses,
        floor=0.0,
    ),
    "uncertainty": Measure(
        "uncertainty of the next token",
        "Entropy of what the model predicts after this token, in nats.",
        _uncertainty,
        floor=0.0,
    ),
    "largest": Measure(
        "largest weight",
        "How much of the source it reads most, as a mean over sites: 1 is one source alone.",
        partial(_mean_over_sites, metrics.largest_weight),
        routed=True,
    ),
    "entropy": Measure(
        "entropy of the weights",
        "As a share of the largest there could be, as a mean over sites: 1 is all sources alike.",
        partial(_mean_over_sites, metrics.normalised_entropy),
        routed=True,
    ),
    "effective": Measure(
        "effective number of sources",
        "How many sources, read alike, would be as spread out; a mean over sites.",
        partial(_mean_over_sites, metrics.effective_sources),
        routed=True,
    ),
    "share": Measure(
        "routed share of what is read",
        "Length of what routing changes, over the length of what is read; a mean over sites.",
        _share,
        routed=True,
    ),
    "change": Measure(
        "change by what is off",
        "How far switching sources off moves what this token predicts: KL divergence, in nats.",
        _change,
        routed=True,
        floor=0.0,
    ),
}
