"""One launch of a kernel: what it is given, and the sizes it is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

INTERPRETED = triton.knobs.runtime.interpret  # kernels ask when they are defined, and so do we
ROWS = 16  # sources in a tile: as few as tensor cores take


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, the constants it is compiled with, and how many programs."""

    kernel: Any
    programs: tuple[int, ...]
    arguments: dict[str, Any]
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 2

    def run(self) -> None:
        """Run it on its tensors' device."""
        if 0 in self.programs:
            return
        tensor = next(each for each in self.arguments.values() if isinstance(each, Tensor))
        with torch.cuda.device_of(tensor):
            self.kernel[self.programs](**self._words())

    def compile(self) -> Any:
        """The compiled kernel, not run."""
        return self.kernel.warmup(grid=self.programs, **self._words())

    def _words(self) -> dict[str, Any]:
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return {**self.arguments, **self.constants, **options}


def power_of_two(number: int, *, least: int, most: int) -> int:
    """The smallest power of two that is not below number, within the limits (powers too)."""
    return min(max(triton.next_power_of_2(number), least), most)
