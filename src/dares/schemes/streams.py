"""What schemes with several streams share: the streams, and the one that the model sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dares.ops.depth_mix.interface import without_autocast
from dares.schemes.base import Decision, DepthState, ResidualScheme


@dataclass
class StreamsState(DepthState):
    """`streams` [..., n, D]; `stream`, which the model sees between layers, is the first."""

    streams: Any = None
    # What a site computed when it read and needs when it writes, by site.
    kept: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)


class StreamsScheme(ResidualScheme):
    """n streams that start as copies of the embedding. A scheme fills in _read and _write."""

    streams: int  # n

    def _start(self, embeddings: Tensor, *, record: bool) -> StreamsState:
        spread = embeddings.unsqueeze(-2).expand(*embeddings.shape[:-1], self.streams, self.width)
        return StreamsState(stream=embeddings, streams=spread)

    def resume(self, state: Any, hidden_states: Tensor) -> None:
        """Every stream takes what the model (a hook, say) has added to the one it sees."""
        if hidden_states is not state.stream:
            state.streams = state.streams + (hidden_states - state.stream).unsqueeze(-2)
            state.stream = hidden_states

    def carried_vectors(self) -> int:
        return self.streams - 1

    def _weights_by_name(self, read: Tensor, mix: Tensor, write: Tensor) -> dict[str, Decision]:
        """A site's weights [..., n], [..., n, n] (row: the stream that receives) and [..., n]."""
        labels = [f"stream {index}" for index in range(self.streams)]
        named = {"read weights": read, "stream mixing": mix, "write weights": write}
        return {name: Decision(labels, values) for name, values in named.items()}

    def _replace(self, state: StreamsState, streams: Tensor) -> None:
        state.streams, state.stream = streams, streams.select(-2, 0)

    def _finish(self, state: Any) -> Tensor:
        """The mean, written so that equal streams give themselves to the last bit."""
        first = state.stream
        if self.streams == 1:
            return first
        rest = state.streams.narrow(-2, 1, self.streams - 1)
        return first + (rest - first.unsqueeze(-2)).sum(-2) / self.streams


def mix(weights: Tensor, streams: Tensor) -> Tensor:
    """A weighted sum of the streams, in their dtype: [..., n] x [..., n, D] -> [..., D]

    Small matrices are made contiguous, here and below: torch would multiply others one by one.
    """
    *tokens, n, width = streams.shape
    row = weights.to(streams.dtype).expand(*tokens, n).reshape(-1, 1, n).contiguous()
    with without_autocast(streams.device.type):
        return torch.bmm(row, streams.reshape(-1, n, width)).view(*tokens, width)


def mix_and_write(matrix: Tensor, streams: Tensor, weights: Tensor, delta: Tensor) -> Tensor:
    """matrix @ streams + weights delta^T, in the streams' dtype.

    matrix: [..., n, n];  streams: [..., n, D];  weights: [..., n];  delta: [..., D]
    """
    *tokens, n, width = streams.shape
    dtype = streams.dtype
    matrix = matrix.to(dtype).expand(*tokens, n, n).reshape(-1, n, n).contiguous()
    weights = weights.to(dtype).expand(*tokens, n).reshape(-1, n, 1).contiguous()
    with without_autocast(streams.device.type):
        written = torch.bmm(weights, delta.to(dtype).reshape(-1, 1, width))
        mixed = torch.baddbmm(written, matrix, streams.reshape(-1, n, width))
    return mixed.view(streams.shape)
