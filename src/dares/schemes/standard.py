"""The ordinary residual connection: the baseline of every comparison."""

from __future__ import annotations

from torch import Tensor

from dares.config import StandardConfig
from dares.schemes.base import DepthState, ResidualScheme


class StandardScheme(ResidualScheme):
    """read = h,  h <- h + delta.   h: [..., D]   (1512.03385)"""

    def __init__(
        self,
        config: StandardConfig,
        *,
        width: int,
        sites: int,
        sites_per_layer: int = 2,
        parallel: bool = False,
    ) -> None:
        super().__init__(
            width=width, sites=sites, sites_per_layer=sites_per_layer, parallel=parallel
        )
        self.config = config

    def _read(self, state: DepthState, site: int) -> Tensor:
        return state.stream

    def _write(self, state: DepthState, site: int, delta: Tensor) -> None:
        self._join_stream(state, site, delta)
