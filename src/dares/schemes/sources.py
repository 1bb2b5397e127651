"""What a routed scheme remembers: one class a kind of source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dares.config import DepthConfig
from dares.schemes.base import DepthState, set_start


@dataclass
class RoutedState(DepthState):
    """The stream, the mixer's bank of finished sources, and the unfinished block."""

    mixer: Any = None  # the DepthMixer of this pass, and its MixState
    bank: Any = None
    running: Tensor | None = None  # the unfinished block's sum
    gates: tuple[Tensor, ...] = ()  # one scalar a router, merge "gate" only


class Sources(nn.Module):
    """A kind of source: what is remembered when a site writes, and how many there are to read."""

    telescopes = False  # do the sources sum to the stream?
    group_sites: int | None = None  # sites that see the same finished sources, if it is fixed

    def first(self, embeddings: Tensor) -> Tensor:
        """The source that the embeddings become."""
        return embeddings

    def finished(
        self, state: RoutedState, site: int, delta: Tensor, *, stream_moved: bool
    ) -> Tensor | None:
        """The source that is complete now that site has written, if any."""
        raise NotImplementedError

    def unfinished(self, state: RoutedState) -> Tensor | None:
        """A source that can be read but is still growing, if any."""
        return None

    def labels(self, written: int) -> list[str]:
        """The names of the readable sources after that many writes."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Set every buffer to its start."""


class SublayerDeltas(Sources):
    """h_0, v_0, v_1, ...: the embedding and every sublayer's delta."""

    telescopes = True

    def finished(
        self, state: RoutedState, site: int, delta: Tensor, *, stream_moved: bool
    ) -> Tensor | None:
        return delta

    def labels(self, written: int) -> list[str]:
        return ["embedding", *(f"delta {site}" for site in range(written))]


class BlockDeltas(Sources):
    """h_0, finished block sums, and the running sum of the current block once it is not empty."""

    def __init__(self, block_sites: int, *, running: bool) -> None:
        super().__init__()
        self.block_sites = block_sites
        self.running = running
        self.telescopes = running
        self.group_sites = block_sites

    def finished(
        self, state: RoutedState, site: int, delta: Tensor, *, stream_moved: bool
    ) -> Tensor | None:
        # In the stream's dtype: under autocast a half-precision sum would drift from the stream.
        delta = delta.to(state.stream.dtype)
        total = delta if state.running is None else state.running + delta
        complete = (site + 1) % self.block_sites == 0
        state.running = None if complete else total
        return total if complete else None

    def unfinished(self, state: RoutedState) -> Tensor | None:
        return state.running if self.running else None

    def labels(self, written: int) -> list[str]:
        names = ["embedding", *(f"block {block}" for block in range(written // self.block_sites))]
        return names + ["running"] * (self.running and written % self.block_sites > 0)


class CumulativeStates(Sources):
    """h_0, h_1, ..., h_s: the stream itself after every write (a parallel layer moves it once)."""

    def __init__(self, writes_a_state: int) -> None:
        super().__init__()
        self.writes_a_state = writes_a_state

    def first(self, embeddings: Tensor) -> Tensor:
        return self.view(embeddings)

    def view(self, stream: Tensor) -> Tensor:
        """The source that a state of the stream becomes."""
        return stream

    def finished(
        self, state: RoutedState, site: int, delta: Tensor, *, stream_moved: bool
    ) -> Tensor | None:
        return self.view(state.stream) if stream_moved else None

    def labels(self, written: int) -> list[str]:
        return [f"state {index}" for index in range(written // self.writes_a_state + 1)]


class NormedStates(CumulativeStates):
    """Control: layer-normed states, so that no source wins by its size."""

    def view(self, stream: Tensor) -> Tensor:
        return nn.functional.layer_norm(stream, stream.shape[-1:])


class ProjectedStates(CumulativeStates):
    """Control: states under one fixed random orthogonal matrix, so that no source is the stream."""

    SEED = 20605

    projection: Tensor

    def __init__(self, writes_a_state: int, width: int) -> None:
        super().__init__(writes_a_state)
        # Saved with the model: two machines' linear algebra need not agree to the last bit.
        self.register_buffer("projection", torch.empty(width, width, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.projection.is_meta:
            return
        generator = torch.Generator().manual_seed(self.SEED)
        with torch.device("cpu"):
            start = torch.empty(self.projection.shape, dtype=torch.float32)
            matrix = nn.init.orthogonal_(start, generator=generator)
        set_start(self.projection, matrix)

    def view(self, stream: Tensor) -> Tensor:
        return stream @ self.projection.to(stream.dtype).T


def build_sources(
    config: DepthConfig, *, width: int, sites_per_layer: int, parallel: bool
) -> Sources:
    """The sources a config asks for."""
    writes_a_state = sites_per_layer if parallel else 1
    match config.sources:
        case "sublayer":
            return SublayerDeltas()
        case "block":
            assert config.block is not None
            return BlockDeltas(config.block * sites_per_layer, running=config.running)
        case "cumulative":
            return CumulativeStates(writes_a_state)
        case "normed":
            return NormedStates(writes_a_state)
        case "projected":
            return ProjectedStates(writes_a_state, width)
    raise AssertionError(f"DepthConfig let sources={config.sources!r} through")
