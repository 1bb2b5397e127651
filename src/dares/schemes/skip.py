"""A fixed skip from the embedding to every read: what routing must beat, since it needs none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dares.schemes.base import DepthState, ResidualScheme


@dataclass
class SkipState(DepthState):
    """The stream, and the embedding h_0 that it began with."""

    embedding: Any = None


class SkipScheme(ResidualScheme):
    """read = h + h_0,  h <- h + delta.   h: [..., D]

    A site that finds h_0 alone reads it as it is, like a routed one with a single source. The sum
    is larger than the stream, and a pre-norm undoes that: there is no `read_scale` to choose,
    since no constant makes h + h_0 the stream. The final norm reads the stream.
    """

    def _start(self, embeddings: Tensor, *, record: bool) -> SkipState:
        return SkipState(stream=embeddings, embedding=embeddings)

    def _read(self, state: Any, site: int) -> Tensor:
        return state.stream + state.embedding if self.writes_before(site) else state.stream

    def _write(self, state: DepthState, site: int, delta: Tensor) -> None:
        self._join_stream(state, site, delta)

    def identity_obstacle(self) -> str | None:
        if not self.writes_before(self.sites - 1):
            return None  # a single layer in parallel: nothing reads anything but the embedding
        return "a fixed skip adds the embedding to what every sublayer reads, from the start"

    def carried_vectors(self) -> int:
        return 1
