"""How different the things are that a site could read: the paper's explanation, measured.

All kinds of sources are made of the same pass of the same model, so that they can be compared:
whichever of them the model itself remembers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dares.routing.metrics import effective_rank, neighbour_cosines
from dares.routing.samples import Samples
from dares.routing.sums import Mean, plain
from dares.schemes import ResidualScheme


@dataclass(frozen=True)
class Redundancy:
    """Of one kind of source: means over tokens.

    sources          how many there are at the end of a pass
    neighbours       cosine of each source with the next
    mean_cosine      the mean of those
    effective_rank   directions that the whole bank spans, from 1 to `sources`
    """

    kind: str
    sources: int
    neighbours: list[float]
    mean_cosine: float
    effective_rank: float


def block_layers(scheme: ResidualScheme) -> int:
    """Layers a block: the model's own, else a quarter of its layers."""
    own: int | None = getattr(scheme.config, "block", None)
    return own or max(1, round(scheme.sites / scheme.sites_per_layer / 4))


class RedundancySums:
    """Adds up passes."""

    def __init__(self, scheme: ResidualScheme) -> None:
        self._block_sites = block_layers(scheme) * scheme.sites_per_layer
        self._sums: dict[str, tuple[Mean, Mean]] = {}

    def add(self, samples: Samples) -> None:
        """Add one pass."""
        embedding, deltas = samples.streams[0], samples.deltas
        size = self._block_sites
        blocks = [sum(deltas[i + 1 : i + size], deltas[i]) for i in range(0, len(deltas), size)]
        kinds = {
            "cumulative state": samples.states(),
            "sublayer delta": [embedding, *deltas],
            "block delta": [embedding, *blocks],
        }
        for kind, sources in kinds.items():
            bank = torch.stack(sources, 1)  # [M, n, D]
            gram: Tensor = bank @ bank.transpose(1, 2)
            neighbours, ranks = self._sums.setdefault(kind, (Mean(), Mean()))
            neighbours.add(neighbour_cosines(gram))
            ranks.add(effective_rank(gram))

    def result(self) -> list[Redundancy]:
        """One entry a kind."""
        return [
            Redundancy(
                kind,
                sources=len(neighbours.mean) + 1,
                neighbours=plain(neighbours.mean),
                mean_cosine=float(neighbours.mean.mean()),
                effective_rank=float(ranks.mean),
            )
            for kind, (neighbours, ranks) in self._sums.items()
        ]
