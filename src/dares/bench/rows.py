"""What a benchmark gives: rows, and how their values grow with depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

EXPONENT = "exponent"


@dataclass(frozen=True)
class Row:
    """One line of a table; the ratio is to the first line of the same measure and layers."""

    layers: int | None  # None: over all of them
    what: str
    measure: str
    value: float
    unit: str
    ratio: float | None = None
    low: float | None = None  # the middle half of the rounds
    high: float | None = None
    tokens_per_second: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def with_growth(rows: Sequence[Row]) -> list[Row]:
    """The rows, and the fitted exponent of each line that was measured at several depths."""
    lines: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        assert row.layers is not None
        lines.setdefault((row.measure, row.what), {})[row.layers] = row.value
    return [
        *rows,
        *(
            Row(None, what, measure, exponent(points), EXPONENT)
            for (measure, what), points in lines.items()
            if len(points) > 1
        ),
    ]


def exponent(points: dict[int, float]) -> float:
    """k of value ~ layers^k: the slope of a straight line through the logarithms."""
    xs, ys = [math.log(x) for x in points], [math.log(y) for y in points.values()]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return rise / sum((x - middle_x) ** 2 for x in xs)
