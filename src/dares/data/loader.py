"""Batches of rows. The step alone says which: there is no position to lose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from dares.data.rows import Rows

IGNORED = -100  # the label that losses leave out


class Loader:
    """Endless epochs over the rows, each in an order of its own, cut into steps.

    Step s of B rows takes places s*B ... s*B + B - 1 of the sequence, whatever the number of ranks;
    each rank has a contiguous share of them. A checkpoint keeps the step, nothing else.
    """

    def __init__(
        self, rows: Rows, *, rows_per_step: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        if rows_per_step < 1 or rows_per_step % world:
            raise ValueError(
                f"rows_per_step must be a multiple of the {world} ranks, got {rows_per_step}"
            )
        if not 0 <= rank < world:
            raise ValueError(f"rank must be between 0 and {world - 1}, got {rank}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.rows, self.rows_per_step, self.seed = rows, rows_per_step, seed
        self.rank, self.world = rank, world
        self._orders: dict[int, npt.NDArray[np.int64]] = {}

    def batch(self, step: int, part: int = 0, parts: int = 1) -> dict[str, torch.Tensor]:
        """This rank's rows of a step, or one of the equal parts of them.

        input_ids: [b, row_tokens]; labels: the same with padding ignored (the model shifts them).
        """
        return batch_of(self.rows, self.indices(step, part, parts))

    def indices(self, step: int, part: int = 0, parts: int = 1) -> npt.NDArray[np.int64]:
        """Which rows `batch` takes."""
        share = self.rows_per_step // self.world
        if parts < 1 or share % parts:
            raise ValueError(
                f"the {share} rows of a rank cannot be cut into {parts} equal parts: choose a "
                "divisor"
            )
        if not 0 <= part < parts:
            raise ValueError(f"part must be between 0 and {parts - 1}, got {part}")
        if step < 0:
            raise ValueError(f"step must not be negative, got {step}")
        size = share // parts
        return self._at(step * self.rows_per_step + self.rank * share + part * size, size)

    def predicted(self, step: int) -> int:
        """Tokens that a step predicts, over all ranks: every true one but a row's first."""
        rows = self._at(step * self.rows_per_step, self.rows_per_step)
        return int((self.rows.lengths[rows] - 1).sum())

    def _at(self, start: int, size: int) -> npt.NDArray[np.int64]:
        """The rows at so many places of the endless sequence."""
        epochs, within = np.divmod(np.arange(start, start + size), len(self.rows))
        found = np.empty(size, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            found[epochs == epoch] = self._order(epoch)[within[epochs == epoch]]
        return found

    def _order(self, epoch: int) -> npt.NDArray[np.int64]:
        if epoch not in self._orders:
            # Sorted by raw bits rather than shuffled: NumPy promises the bits of a generator to
            # stay the same over its versions, and the methods built on them not to.
            bits = np.random.PCG64(np.random.SeedSequence([self.seed, epoch]))
            order = np.argsort(bits.random_raw(len(self.rows)), kind="stable")
            recent = list(self._orders.items())[-1:]  # a step may straddle two epochs
            self._orders = {**dict(recent), epoch: order}
        return self._orders[epoch]


def batch_of(rows: Rows, indices: Sequence[int] | npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
    """The named rows as a model takes them."""
    ids = torch.from_numpy(rows.take(indices))
    lengths = torch.from_numpy(rows.lengths[np.asarray(indices)])
    padding = torch.arange(rows.row_tokens) >= lengths[:, None]
    return {"input_ids": ids, "labels": ids.masked_fill(padding, IGNORED)}
