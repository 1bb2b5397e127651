"""Large buffers that are used again: on a CPU, fresh memory costs more than what is done in it.

(An accelerator's allocator keeps its memory itself, so nothing is kept here for it.)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

KEPT = 8  # buffers, the latest

_lock = threading.Lock()
_free: list[Tensor] = []


class Lease:
    """A buffer of a shape, with any contents; it can be used by others when the lease is gone.

    No view of it may outlive the lease.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        size = math.prod(shape)
        self._flat = _find(size, dtype) if device.type == "cpu" else None
        if self._flat is None:
            self._flat = torch.empty(size, dtype=dtype, device=device)
        self.tensor = self._flat[:size].view(*shape)

    def __del__(self) -> None:
        flat = getattr(self, "_flat", None)
        if flat is not None and flat.device.type == "cpu":
            with _lock:
                _free.append(flat)
                del _free[:-KEPT]


def _find(size: int, dtype: torch.dtype) -> Tensor | None:
    with _lock:
        for index, flat in enumerate(_free):
            if flat.dtype == dtype and size <= flat.numel() <= 2 * size:
                return _free.pop(index)
    return None
