"""What depth mixing keeps, in bytes a token: the grouped backend's tape, reads and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from dares.config import SchemeConfig
from dares.ops.depth_mix.gathered import FEW_SOURCES
from dares.schemes import RoutedScheme, build_scheme
from dares.train.recipe import ModelShape

EXACT = 4  # bytes of the stream, the norms' inputs, scores and the loss, in either precision


@dataclass(frozen=True)
class Read:
    """One routed read: old sources, whose sums its group shares, younger ones, and what else."""

    site: int
    old: int
    young: int
    running: bool
    null: bool

    @property
    def sources(self) -> int:
        """All that its softmax goes over."""
        return self.old + self.young + self.running + self.null


@dataclass(frozen=True)
class Bank:
    """A scheme's sources, and the reads of each group. All figures are bytes a token."""

    width: int
    layers: int
    sources: int
    groups: tuple[tuple[Read, ...], ...]

    @classmethod
    def of(cls, shape: ModelShape, depth: SchemeConfig) -> Bank:
        """The bank of a model of that shape; an empty one where nothing is routed."""
        with torch.device("meta"):
            scheme: Any = build_scheme(
                depth, width=shape.width, sites=2 * shape.layers, backend="grouped"
            )
        if depth.scheme == "standard":
            return cls(shape.width, shape.layers, 0, ())
        if not isinstance(scheme, RoutedScheme):
            raise ValueError(
                f"the activation formula knows schemes 'standard' and 'routed', "
                f"got {depth.scheme!r}: measure it with dares bench memory --schemes standard,..."
            )
        plan = scheme._mixers["grouped"].plan
        sites = iter(scheme.router_of_site)
        groups = (tuple(_reads(scheme, [next(sites) for _ in range(n)])) for n in plan.groups)
        return cls(shape.width, shape.layers, plan.sources, tuple(groups))

    @property
    def reads(self) -> list[Read]:
        """Every routed read, in order."""
        return [read for group in self.groups for read in group]

    @property
    def shares_sums(self) -> bool:
        """Are there groups with sums of old sources?"""
        return bool(self._summed())

    def kept(self) -> int:
        """Sources and scores once, and at each read its weights and the block it found running."""
        softmax = 2 * EXACT * sum(map(len, self._summed()))  # maximum and sum over the old sources
        return self._tape() + softmax + sum(self._read_bytes(read) for read in self.reads)

    def kept_when_checkpointed(self) -> int:
        """The tape, and the state at the border of each layer, which its second run starts from:
        the running block, and the sums of the group that is open.
        """
        running = sum(read.running for read in self.reads if read.site % 2 == 0)
        last = 2 * (self.layers - 1)
        sums = sum(len(group) + 1 for group in self._summed() if group[0].site < last)
        return self._tape() + EXACT * self.width * (running + sums)

    def working(self) -> int:
        """Gradients of sources and scores; a group's sums, and the gradients of its reads."""
        largest = max((2 * len(group) + 1 for group in self._summed()), default=0)
        return self._tape() + EXACT * self.width * largest

    def working_when_checkpointed(self) -> int:
        """The same, and for the layer that is run again a tape of its own with its gradients."""
        return self.working() + 2 * self._tape()

    def products(self) -> int:
        """Multiplications and additions of a forward pass: a score and a mix for each source of
        each read.
        """
        return 4 * self.width * sum(read.sources for read in self.reads)

    def _tape(self) -> int:
        """Sources, their scores for every router, and their inverse root mean squares."""
        return self.sources * EXACT * (self.width + len(self.reads) + 1)

    def _summed(self) -> list[tuple[Read, ...]]:
        return [group for group in self.groups if group[0].old]

    def _read_bytes(self, read: Read) -> int:
        terms = read.young + read.running
        weights, coefficients = terms + read.null, terms
        if read.old:  # one weight for all of them, a coefficient each for their mix and their sum
            weights, coefficients = weights + 1, coefficients + 2
        running = read.running * (self.width + 2)  # with its score and inverse root mean square
        return EXACT * (weights + coefficients + running)


def _reads(scheme: RoutedScheme, sites: list[int]) -> Iterator[Read]:
    """The reads of a group. The sources that its first one finds are old to all of them, unless
    they are too few to be summed.
    """
    old = None
    for site in sites:
        labels = scheme.source_labels(site)
        running, null = "running" in labels, "null" in labels
        finished = len(labels) - running - null
        if old is None:
            old = finished if finished > FEW_SOURCES else 0
        yield Read(site, old, finished - old, running, null)
