"""What sublayers read and wrote in one pass, at some of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dares.schemes import Decision, DepthState, ResidualScheme, Watcher

EVERY = 8  # norms and products are taken at every so many tokens of a row: they vary little


class Samples(Watcher):
    """Keeps every EVERY-th token of each row; a row's first tokens, often huge, are not among them.

    streams  the stream that each site met, then the one that the final norm meets [M, D] each
    reads    what each site read, then what the final norm reads
    deltas   what each site wrote
    """

    def __init__(self, scheme: ResidualScheme, mask: Tensor) -> None:
        self.scheme = scheme
        place = mask.cumsum(-1)  # counted from 1, over what is not padding
        self._rows = (mask & (place % EVERY == 0)).flatten().nonzero().squeeze(-1)
        self.streams: list[Tensor] = []
        self.reads: list[Tensor] = []
        self.deltas: list[Tensor] = []
        self.decisions: dict[int, dict[str, Decision]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def _taken(self, tensor: Tensor, dims: int = 1) -> Tensor:
        """The sampled tokens of [B, T, ...], with `dims` axes after the tokens'."""
        flat = tensor.detach().flatten(0, tensor.ndim - dims - 1)
        return flat.index_select(0, self._rows).double()

    def on_read(self, state: DepthState, site: int, read: Tensor) -> None:
        self.streams.append(self._taken(state.stream))
        self.reads.append(self._taken(read))
        if site < self.scheme.sites:
            self.decisions[site] = {
                name: Decision(labels, self._taken(values, values.ndim - state.stream.ndim + 1))
                for name, (labels, values) in self.scheme.decisions(state, site).items()
            }

    def on_write(self, state: DepthState, site: int, delta: Tensor) -> None:
        self.deltas.append(self._taken(delta))

    def states(self) -> list[Tensor]:
        """Every state of the stream once: in parallel layers some sites meet the same one."""
        scheme = self.scheme
        firsts = {scheme.writes_before(site): site for site in reversed(range(scheme.sites))}
        return [self.streams[firsts[w]] for w in sorted(firsts)] + [self.streams[-1]]


@contextmanager
def watching(scheme: ResidualScheme, watcher: Watcher | None) -> Iterator[None]:
    """The watcher, if there is one, sees the passes inside."""
    if scheme.watcher is not None:
        raise ValueError("the scheme is being watched already: end that first")
    scheme.watcher = watcher
    try:
        yield
    finally:
        scheme.watcher = None


def length(vectors: Tensor) -> Tensor:
    """|x| over the last axis."""
    return torch.linalg.vector_norm(vectors, dim=-1)


class GradientSamples(Watcher):
    """Keeps what each site wrote, as autograd knows it."""

    def __init__(self) -> None:
        self.deltas: list[Tensor] = []

    def on_write(self, state: DepthState, site: int, delta: Tensor) -> None:
        self.deltas.append(delta)


Progress = Callable[[int], Any]  # told how many tokens have been done since
