"""Deep Delta Learning: a sublayer erases along its output's direction, and writes there."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dares.config import DdlConfig
from dares.schemes.base import Decision
from dares.schemes.normed_product import normed_product
from dares.schemes.streams import StreamsScheme, StreamsState


class DdlScheme(StreamsScheme):
    """X <- X + beta k (v^T - k^T X),   k = y / sqrt(|y|^2 + eps^2)

    beta = 2 sigmoid(w . c + w_0),   v = V c,   c = x / rms(x),   x = X r

    X: [..., D, d_v], as streams [..., d_v, D];  y: what the sublayer gave;  x: what it read,
    r [d_v] from 1/d_v (x = X where d_v is 1). The matrix I - beta k k^T keeps what is
    across k; along k, beta 0 keeps, 1 overwrites, 2 reflects. w and V start at zero. The norm of c
    has no gain: w and V would absorb it. Without `erase`, X <- X + beta k v^T, a control.
                                                                                   (2601.00417)
    """

    def __init__(self, config: DdlConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.streams = columns = config.columns
        shape = (self.sites, self.width, 1 + columns)
        self.projection = nn.Parameter(torch.empty(shape, dtype=torch.float32))  # w and V
        self.gate = nn.Parameter(torch.empty(self.sites, dtype=torch.float32))  # w_0
        if columns > 1:
            # the last one is the final norm's
            self.columns = nn.Parameter(torch.empty(self.sites + 1, columns, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        start = self.config.gate_start
        nn.init.zeros_(self.projection)  # a random V would write noise larger than the embedding
        nn.init.constant_(self.gate, math.log(start / (2 - start)))
        if self.streams > 1:
            nn.init.constant_(self.columns, 1 / self.streams)

    def _read(self, state: StreamsState, site: int) -> Tensor:
        read = self._mixed(state, site)
        state.kept[site] = (read,)
        return read

    def _mixed(self, state: StreamsState, row: int) -> Tensor:
        if self.streams == 1:
            return state.stream
        weights = self.columns[row].to(state.streams.dtype)
        return (weights.unsqueeze(0) @ state.streams).squeeze(-2)

    def _write(self, state: StreamsState, site: int, delta: Tensor) -> None:
        (read,) = state.kept.pop(site)
        beta, wanted = self._gate_and_value(read, site)
        streams = state.streams
        y = delta.to(wanted.dtype)
        inverse = (y.square().sum(-1, keepdim=True) + self.config.eps**2).rsqrt()
        if self.config.erase:
            along = (streams.to(y.dtype) @ y.unsqueeze(-1)).squeeze(-1) * inverse  # k^T X
            wanted = wanted - along
        amount = (beta * inverse * wanted).unsqueeze(-1)  # of y, for each column
        moved = torch.addcmul(streams.to(y.dtype), y.unsqueeze(-2), amount)
        self._replace(state, moved.to(streams.dtype))

    def _gate_and_value(self, read: Tensor, site: int) -> tuple[Tensor, Tensor]:
        """beta [..., 1] and v [..., d_v]"""
        logits = normed_product(read, self.projection[site], self.config.eps)  # [..., 1 + d_v]
        return 2 * torch.sigmoid(logits[..., :1] + self.gate[site]), logits[..., 1:]

    def decisions(self, state: Any, site: int) -> dict[str, Decision]:
        (read,) = state.kept[site]
        return {"gate beta": Decision(["beta"], self._gate_and_value(read, site)[0])}

    def _finish(self, state: Any) -> Tensor:
        return self._mixed(state, self.sites)

    def identity_obstacle(self) -> str | None:
        return (
            "Deep Delta Learning moves the stream along a sublayer's output and never adds it, so "
            "no gate gives a pretrained model's sums"
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, columns={self.streams}, erase={self.config.erase}"
