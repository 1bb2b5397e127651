"""Running means in float64: what is kept does not grow with what was seen."""

from __future__ import annotations

import torch
from torch import Tensor


class Mean:
    """The mean and the spread of tensors [N, ...] over all rows that were ever added."""

    def __init__(self) -> None:
        self.count = 0
        self._sum: Tensor | None = None
        self._squares: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Add rows [N, ...]; every call's must have the same shape after N."""
        exact = rows.detach().double()
        total, squares = exact.sum(0), exact.square().sum(0)
        if self._sum is not None and self._squares is not None:
            total, squares = total + self._sum, squares + self._squares
        self._sum, self._squares = total, squares
        self.count += len(rows)

    @property
    def mean(self) -> Tensor:
        """[...]"""
        assert self._sum is not None, "nothing was added"
        return self._sum / self.count

    @property
    def spread(self) -> Tensor:
        """The standard deviation over rows [...]."""
        assert self._squares is not None, "nothing was added"
        return (self._squares / self.count - self.mean.square()).clamp(min=0).sqrt()


def plain(tensor: Tensor) -> list[float]:
    """As JSON keeps it."""
    return torch.as_tensor(tensor).double().cpu().tolist()
