"""Numbers that say how a model routes: pure functions of weights and of sources' products."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# -- one site's weights [..., n] -----------------------------------------------------------------


def largest_weight(weights: Tensor) -> Tensor:
    """max_i a_i: 1 where a token reads one source alone, 1/n where it reads all alike."""
    return weights.amax(-1)


def entropy(weights: Tensor) -> Tensor:
    """-sum_i a_i log a_i in nats: 0 for one source alone, log n for all alike."""
    return torch.special.entr(weights).sum(-1)


def normalised_entropy(weights: Tensor) -> Tensor:
    """Entropy over log n, from 0 to 1 whatever n is; 0 where there is one source."""
    n = weights.shape[-1]
    return entropy(weights) / math.log(n) if n > 1 else torch.zeros_like(weights[..., 0])


def effective_sources(weights: Tensor) -> Tensor:
    """exp(entropy): that many sources, read alike, would have this entropy. 1 to n."""
    return entropy(weights).exp()


def utilisation(mean_weights: Tensor) -> Tensor:
    """The effective sources of the weights' mean over tokens, as a share of n.

    1 where all sources are read alike in the long run, 1/n where it is always the same one.
    """
    return effective_sources(mean_weights) / mean_weights.shape[-1]


# -- all sites of a pass -------------------------------------------------------------------------


@dataclass(frozen=True)
class Sharpness:
    """Means over tokens, of one site or of all."""

    largest: float  # the largest weight: 1 where a site reads one source alone
    entropy: float  # in nats: 0 there, log n where it reads all n alike


@torch.no_grad()
def sharpness_by_site(routing: Iterable[Tensor | None]) -> list[Sharpness | None]:
    """How sharp each site's choice is; weights [..., n] a site, None where it has no choice."""
    return [
        None
        if weights is None
        else Sharpness(float(largest_weight(weights).mean()), float(entropy(weights).mean()))
        for weights in routing
    ]


def sharpness(routing: Iterable[Tensor | None]) -> Sharpness | None:
    """The mean over the sites that have a choice; None where there are none."""
    return mean_sharpness(sharpness_by_site(routing))


def mean_sharpness(by_site: Iterable[Sharpness | None]) -> Sharpness | None:
    """The same from what is known of each site."""
    sites = [each for each in by_site if each is not None]
    if not sites:
        return None
    return Sharpness(
        math.fsum(each.largest for each in sites) / len(sites),
        math.fsum(each.entropy for each in sites) / len(sites),
    )


# -- how different sources are, from their products [..., n, n] -----------------------------------


def cosines(gram: Tensor) -> Tensor:
    """u_i . u_j / (|u_i| |u_j|) [..., n, n]; a source that is zero is across all others."""
    lengths = gram.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    inverse = torch.where(lengths > 0, 1 / lengths, 0)
    return gram * inverse.unsqueeze(-1) * inverse.unsqueeze(-2)


def neighbour_cosines(gram: Tensor) -> Tensor:
    """The cosine of each source with the next [..., n - 1]."""
    return cosines(gram).diagonal(offset=1, dim1=-2, dim2=-1)


def effective_rank(gram: Tensor) -> Tensor:
    """How many directions n sources span, by their directions alone: from 1 to n.

    exp of the entropy of the eigenvalues of the cosines, taken as shares: 1 where all sources are
    parallel, n where each is at right angles to all others.
    """
    eigenvalues = torch.linalg.eigvalsh(cosines(gram)).clamp(min=0)
    shares = eigenvalues / eigenvalues.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.special.entr(shares).sum(-1).exp()


# -- do two orders agree? ------------------------------------------------------------------------


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's, ties sharing their mean rank; None where one of the two does not vary."""
    ranks = np.stack([_ranks(np.asarray(values, dtype=np.float64)) for values in (first, second)])
    if ranks.shape[1] < 2 or (np.ptp(ranks, axis=1) == 0).any():
        return None
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]
