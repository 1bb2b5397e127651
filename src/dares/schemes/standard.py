"""The ordinary residual connection: the baseline of every comparison."""

from __future__ import annotations

from torch import Tensor

from dares.schemes.base import DepthState, ResidualScheme


class StandardScheme(ResidualScheme):
    """read = h,  h <- h + delta.   h: [..., D]   (1512.03385)"""

    def _read(self, state: DepthState, site: int) -> Tensor:
        return state.stream

    def _write(self, state: DepthState, site: int, delta: Tensor) -> None:
        self._join_stream(state, site, delta)
