"""Hyper-Connections: n streams, read, mixed and written with learned weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dares.config import HyperConfig
from dares.schemes.base import Decision, set_start
from dares.schemes.normed_product import normed_product
from dares.schemes.streams import StreamsScheme, StreamsState, mix, mix_and_write


class HyperScheme(StreamsScheme):
    """read = m^T H,   H <- A^T H + b delta^T

    H: [..., n, D];  m, b: [n], A: [n, n] a site, static at the start m = one stream in turn, A = I,
    b = 1: all streams stay equal, and are the pre-norm residual. Dynamic weights add to each

    s * tanh(H' W),   H' = H / rms(H),   W: [D, n + 2] from zero, s: [2] from 0.01 a site

    a token's own part, columns of W for m, for A and for b.                       (2409.19606)
    """

    def __init__(self, config: HyperConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.streams, self.dynamic = config.streams, config.dynamic
        n, sites = config.streams, self.sites
        self.weights = nn.Parameter(torch.empty(sites, n, n + 2, dtype=torch.float32))
        if self.dynamic:
            self.projection = nn.Parameter(
                torch.empty(sites, self.width, n + 2, dtype=torch.float32)
            )
            self.scale = nn.Parameter(torch.empty(sites, 2, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        n = self.streams
        start = torch.zeros(self.sites, n, n + 2)
        start[:, :, 1 : n + 1] = torch.eye(n)
        start[:, :, n + 1] = 1
        for site in range(self.sites):
            start[site, site % n, 0] = 1
        set_start(self.weights, start)
        if self.dynamic:
            nn.init.zeros_(self.projection)
            nn.init.constant_(self.scale, 0.01)

    def _read(self, state: StreamsState, site: int) -> Tensor:
        weights = self.weights[site]
        if self.dynamic:
            read, write = self.scale[site]
            scales = torch.cat([read.expand(self.streams + 1), write.expand(1)])
            logits = normed_product(state.streams, self.projection[site], self.config.eps)
            weights = weights + scales * torch.tanh(logits)
        state.kept[site] = (weights,)
        return mix(weights[..., 0], state.streams)

    def _write(self, state: StreamsState, site: int, delta: Tensor) -> None:
        (weights,) = state.kept.pop(site)
        n = self.streams
        matrix = weights[..., 1 : n + 1].transpose(-1, -2)
        self._replace(state, mix_and_write(matrix, state.streams, weights[..., n + 1], delta))

    def decisions(self, state: Any, site: int) -> dict[str, Decision]:
        (weights,) = state.kept[site]
        n = self.streams
        each = weights.expand(*state.stream.shape[:-1], n, n + 2)  # static ones are every token's
        mix = each[..., 1 : n + 1].transpose(-1, -2)
        return self._weights_by_name(each[..., 0], mix, each[..., n + 1])

    def identity_obstacle(self) -> str | None:
        if self.dynamic and self.projection.detach().any():
            return "the dynamic weights have been trained"
        weights, n = self.weights.detach(), self.streams
        start = torch.eye(n, device=weights.device).expand(self.sites, n, n)
        reads = weights[:, :, 0]
        ones_read = (reads.sum(-1) == 1) & ((reads == 0) | (reads == 1)).all(-1)
        same = (weights[:, :, 1 : n + 1] == start).all() and (weights[:, :, n + 1] == 1).all()
        return None if bool(same and ones_read.all()) else "the static weights have been trained"

    def extra_repr(self) -> str:
        kind = "dynamic" if self.dynamic else "static"
        return f"{super().extra_repr()}, streams={self.streams}, {kind}"
