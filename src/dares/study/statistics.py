"""Means, intervals and p-values over seeds: pure functions of a few numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dares.evals.bootstrap import sign_flip_p
from dares.evals.student import student_p, student_quantile

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval (Student's t); no interval of a single seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def excludes_zero(self) -> bool:
        """Does the interval lie on one side of zero?"""
        return self.low is not None and self.high is not None and self.low * self.high > 0


@dataclass(frozen=True)
class Difference:
    """A variant less its baseline, seed by seed. p-values are two-sided.

    t_p           of the paired t-test; None of a single seed
    sign_flip_p   of all ways to negate the seeds' differences; with n seeds never below 2 / 2^n
    """

    estimate: Estimate
    t_p: float | None
    sign_flip_p: float


def estimate(values: Sequence[float]) -> Estimate:
    """mean +- t * s / sqrt(n)"""
    n = len(values)
    if n == 0:
        raise ValueError("a mean needs at least one value, got none")
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, None, 1)
    reach = student_quantile((1 + LEVEL) / 2, n - 1) * _standard_error(values)
    return Estimate(mean, mean - reach, mean + reach, n)


def paired_difference(values: Sequence[float], base: Sequence[float]) -> Difference:
    """values - base, seed by seed."""
    differences = [one - other for one, other in zip(values, base, strict=True)]
    found = estimate(differences)
    t_p = None
    if len(differences) > 1:
        error = _standard_error(differences)
        # seeds that agree to the last bit: certain, or no difference at all
        t = found.mean / error if error else math.copysign(math.inf, found.mean)
        t_p = 1.0 if not found.mean else student_p(t, len(differences) - 1)
    return Difference(found, t_p, sign_flip_p(np.array(differences)))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values that stay honest together: the k-th smallest of m counts (m - k + 1) times (1979).

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    corrected, largest = {}, 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, p * (len(p_values) - rank)))
        corrected[name] = largest
    return corrected


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))
