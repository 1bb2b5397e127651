"""Student's t: tail probabilities and quantiles, for whole degrees of freedom."""

from __future__ import annotations

import math
from functools import cache


def student_p(t: float, freedom: int) -> float:
    """P(|T| >= |t|) for whole degrees of freedom: the finite series in cos(atan(t / sqrt(n))).

    (Abramowitz and Stegun 26.7.3 and 26.7.4)
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1.0 - inside)


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """The t below which T lies with a probability above one half, by bisection."""
    low, high = 0.0, 1.0
    while student_p(high, freedom) > 2 * (1 - probability):
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if student_p(middle, freedom) > 2 * (1 - probability):
            low = middle
        else:
            high = middle
    return (low + high) / 2
