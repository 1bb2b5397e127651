"""Large buffers that are used again: on a CPU, fresh memory costs more than what is done in it.

A buffer comes back by itself when the last tensor that shares its storage is gone, whoever holds it
(a tensor saved for the backward, say). An accelerator's allocator keeps its memory itself, so there
it is left alone.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

KEPT = 8  # free buffers, the latest
ALIGNMENT = 64  # bytes, as torch's own

_lock = threading.Lock()
_free: list[np.ndarray] = []


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor with any contents."""
    if device.type != "cpu":
        return torch.empty(*shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = _find(size)
    # The tensor's storage holds this view of the memory, and nobody else does.
    view = memory[:size]
    weakref.finalize(view, _give_back, memory).atexit = False
    return torch.from_numpy(view).view(dtype).view(*shape)


def _find(size: int) -> np.ndarray:
    with _lock:
        for index, memory in enumerate(_free):
            if size <= len(memory) <= 2 * size:
                return _free.pop(index)
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _give_back(memory: np.ndarray) -> None:
    with _lock:
        _free.append(memory)
        del _free[:-KEPT]
