"""Manifold-constrained Hyper-Connections: streams mix by a doubly stochastic matrix."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dares.config import MhcConfig
from dares.schemes.base import Decision, set_start
from dares.schemes.normed_product import normed_product
from dares.schemes.sinkhorn import sinkhorn
from dares.schemes.streams import StreamsScheme, StreamsState, mix, mix_and_write

# Off the diagonal the mixing logits start so far below it. Farther would be nearer the identity,
# but Sinkhorn's steps then no longer reach a doubly stochastic matrix: they shrink the error by the
# square of its second singular value (0.6 here, 0.999 at 8).
FAR = 2.0


class MhcScheme(StreamsScheme):
    """read = m^T H,   H <- A H + b delta^T

    m = sigmoid(z_m),   b = 2 sigmoid(z_b),   A = sinkhorn(exp(z_A))
    z = s * (x W) + z0,   x = vec(H) / rms(vec(H))

    H: [..., n, D];  m, b: [n], A: [n, n], whose rows and columns sum to one;  W: [nD, n (n + 2)]
    from zero, s: [3] from 0.01, z0: n (n + 2) numbers a site. At the start m = 1/n, b = 1 and the
    streams are equal: the pre-norm residual, to rounding.                         (2512.24880)
    """

    def __init__(self, config: MhcConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.streams = n = config.streams
        numbers = n * (n + 2)
        self.bias = nn.Parameter(torch.empty(self.sites, numbers, dtype=torch.float32))
        self.projection = nn.Parameter(
            torch.empty(self.sites, n * self.width, numbers, dtype=torch.float32)
        )
        self.scale = nn.Parameter(torch.empty(self.sites, 3, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        n = self.streams
        nn.init.zeros_(self.projection)
        nn.init.constant_(self.scale, 0.01)
        read = torch.full((n,), -math.log(n - 1))  # sigmoid gives 1/n
        mix = (FAR * torch.eye(n) - FAR).flatten()
        set_start(self.bias, torch.cat([read, torch.zeros(n), mix]).expand(self.sites, -1))

    def weights(self, streams: Tensor, site: int) -> tuple[Tensor, Tensor, Tensor]:
        """m [..., n], b [..., n] and A [..., n, n] of that site, for those streams."""
        n = self.streams
        read, write, mix = self.scale[site]
        scales = torch.cat([read.expand(n), write.expand(n), mix.expand(n * n)])
        own = normed_product(streams.flatten(-2), self.projection[site], self.config.eps)
        logits = scales * own + self.bias[site]
        matrix = sinkhorn(logits[..., 2 * n :].unflatten(-1, (n, n)), self.config.sinkhorn_steps)
        return logits[..., :n].sigmoid(), 2 * logits[..., n : 2 * n].sigmoid(), matrix

    def _read(self, state: StreamsState, site: int) -> Tensor:
        m, b, matrix = self.weights(state.streams, site)
        state.kept[site] = (b, matrix)
        return mix(m, state.streams)

    def _write(self, state: StreamsState, site: int, delta: Tensor) -> None:
        b, matrix = state.kept.pop(site)
        self._replace(state, mix_and_write(matrix, state.streams, b, delta))

    def decisions(self, state: Any, site: int) -> dict[str, Decision]:
        read, write, matrix = self.weights(state.streams, site)
        return self._weights_by_name(read, matrix, write)

    def identity_obstacle(self) -> str | None:
        n, bias = self.streams, self.bias.detach()
        if self.projection.detach().any():
            return "the weights that follow the input have been trained"
        sums = bias[:, :n].sigmoid().sum(-1)
        rest = bias[:, 2 * n :].unflatten(-1, (n, n))
        symmetric = torch.allclose(rest, rest.transpose(-1, -2))
        if not torch.allclose(sums, torch.ones_like(sums)) or bias[:, n : 2 * n].any():
            return "the read and write weights have been trained"
        return None if symmetric else "the mixing matrices have been trained"

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, streams={self.streams}"
