"""Intervals and p-values by resampling: pure functions on NumPy arrays.

A *unit* is what was drawn independently: an item of a task, a document, a seed. Its values for all
models stand in one row, so that every resample takes the same units for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dares.evals.student import student_quantile

Array = NDArray[np.float64]

RESAMPLES = 10_000
_CHUNK = 1 << 22  # numbers drawn at once: 32 MB


def resampled_sums(
    values: Array, *, resamples: int = RESAMPLES, seed: int | Sequence[int] = 0
) -> Array:
    """The sum of each column over units drawn with replacement.  [n, k] -> [resamples, k]

    Resamples follow from the number of units and the seed alone, so that two calls are paired.
    """
    units = len(values)
    random = np.random.default_rng(seed)
    sums = np.empty((resamples, values.shape[1]))
    for start, size in _chunks(resamples, units):
        drawn = random.integers(0, units, (size, units))
        for column in range(values.shape[1]):
            sums[start : start + size, column] = values[:, column][drawn].sum(1)
    return sums


def interval(draws: Array, units: int, *, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of a resampled statistic, widened for the number of units.

    The plain percentile interval of a mean is short by sqrt((n - 1) / n) and takes the normal
    quantile where Student's belongs; both are mended by moving the percentiles outwards
    (Hesterberg 2015, arXiv 1411.5279, section 3.4).
    """
    if units < 2:
        raise ValueError(f"an interval needs at least 2 units to resample, got {units}")
    if not 0 < level < 1:
        raise ValueError(f"level must be a share between 0 and 1, got {level}")
    reach = student_quantile((1 + level) / 2, units - 1) * math.sqrt(units / (units - 1))
    tail = NormalDist().cdf(-reach)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def sign_flip_p(differences: Array, *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """How often a sum as large comes about when every unit's difference may as well be negated.

    Two-sided. With few units all 2^n signs are taken; else drawn ones, the given one among them.
    """
    nonzero = differences[differences != 0]  # a zero has no sign to flip
    units = len(nonzero)
    # rounding must not tell apart what is equal
    found = abs(nonzero.sum()) - 1e-12 * np.abs(nonzero).sum()
    if 2**units <= resamples:
        signs = 1.0 - 2.0 * (np.arange(2**units)[:, None] >> np.arange(units) & 1)
        return float(np.mean(np.abs(signs @ nonzero) >= found))
    random = np.random.default_rng(seed)
    reached = 0
    for _, size in _chunks(resamples, units):
        signs = random.integers(0, 2, (size, units), dtype=np.int8) * 2.0 - 1.0
        reached += int((np.abs(signs @ nonzero) >= found).sum())
    return (1 + reached) / (1 + resamples)


def _chunks(resamples: int, units: int) -> list[tuple[int, int]]:
    """(start, size) of pieces of the resamples that fit the memory."""
    size = max(1, _CHUNK // max(units, 1))
    return [(start, min(size, resamples - start)) for start in range(0, resamples, size)]
