"""Is a model better than the first one? Differences with intervals and p-values, in one table.

Units (items of a task, documents or pieces of a text) are paired: every resample takes the same
units for all models. The interval is the bootstrap's, the p-value that of the sign-flip test. The
mean of the paper's eight tasks resamples within each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dares.evals.bootstrap import RESAMPLES, Array, interval, resampled_sums, sign_flip_p
from dares.evals.pairing import Paired, pair
from dares.evals.paper8 import NAME, PAPER8

LEVEL = 0.95


@dataclass(frozen=True)
class Row:
    """One model on one task; the difference is to the first model, None for itself.

    low, high and p are None where there is a single unit, which nothing can be said from.
    """

    task: str
    metric: str
    units: int
    unit: str
    model: str
    value: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    changed: int | None = None  # units whose value is another than the first model's
    better: bool = False  # only where the interval leaves zero out


def compare(
    labels: Sequence[str],
    results: Sequence[dict[str, dict[str, Any]]],
    names: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Row]:
    """A row for every task and model. results: of each model, task -> entry."""
    pairs = [pair(name, labels, [result[name] for result in results]) for name in names]
    rows: list[Row] = []
    draws: dict[str, Array] = {}
    for number, paired in enumerate(pairs):
        # a seed for each: tasks of one size must not be resampled in step
        draws[paired.name] = _draws(paired, resamples, [seed, number])
        rows += _rows(labels, paired, draws[paired.name], resamples, seed)
    if set(PAPER8) <= set(names):
        eight = [paired for paired in pairs if paired.name in PAPER8]
        mean = np.mean([draws[paired.name] for paired in eight], axis=0)
        rows += _rows(labels, _mean(eight), mean, resamples, seed)
    return rows


def shared_names(results: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The tasks that all results have, and those that only some do."""
    shared = [name for name in results[0] if all(name in result for result in results)]
    rest = {name for result in results for name in result} - set(shared)
    return shared, sorted(rest)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain values."""
    return [asdict(row) for row in rows]


def cells(row: Row) -> list[str]:
    """A row as the tables show it."""
    value = f"{row.value:.4f}"
    shown = [row.task, row.metric, f"{row.units} {row.unit}", row.model]
    shown.append(f"**{value}**" if row.better else value)
    if row.difference is None:
        return [*shown, "", "", "", ""]
    shown.append(f"{row.difference:+.4f}")
    known = row.low is not None and row.high is not None and row.p is not None
    shown.append(f"{row.low:+.4f} to {row.high:+.4f}" if known else "one unit: not known")
    shown.append(_p(row.p) if row.p is not None else "")
    return [*shown, str(row.changed)]


HEADINGS = (
    "task",
    "metric",
    "units",
    "model",
    "value",
    "difference",
    "95 % interval",
    "p",
    "changed",
)


def markdown(rows: Sequence[Row]) -> str:
    """The table, and how to read it."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines) + f"\n\n{LEGEND}\n"


LEGEND = (
    "Differences are to the first model. Interval: paired bootstrap over the units; p: two-sided "
    "sign-flip test; neither is corrected for the number of rows. changed: units with another "
    "value. Bold: better than the first model, and the interval leaves zero out."
)


def _draws(paired: Paired, resamples: int, seed: Sequence[int]) -> Array:
    """Each model's value in every resample.  [resamples, models]"""
    columns = np.column_stack([paired.sums, paired.weights])
    sums = resampled_sums(columns, resamples=resamples, seed=seed)
    return sums[:, :-1] / sums[:, -1:]


def _mean(pairs: Sequence[Paired]) -> Paired:
    """The mean of tasks as if it were one: an item of a small task weighs more."""
    scaled = [paired.sums / paired.weights.sum() / len(pairs) for paired in pairs]
    sums = np.concatenate(scaled)
    return Paired(f"mean of {NAME}", "mean", "items", True, sums, np.full(len(sums), 1 / len(sums)))


def _rows(
    labels: Sequence[str], paired: Paired, draws: Array, resamples: int, seed: int
) -> list[Row]:
    units, values = len(paired.sums), paired.values
    shared = (paired.name, paired.metric, units, paired.unit)
    rows = [Row(*shared, labels[0], float(values[0]))]
    for number in range(1, len(labels)):
        change = paired.sums[:, number] - paired.sums[:, 0]
        difference = float(values[number] - values[0])
        rest: dict[str, Any] = {"difference": difference, "changed": int((change != 0).sum())}
        if units > 1:
            low, high = interval(draws[:, number] - draws[:, 0], units, level=LEVEL)
            rest |= {"low": low, "high": high}
            rest["p"] = sign_flip_p(change, resamples=resamples, seed=seed)
            rest["better"] = low > 0 if paired.higher_is_better else high < 0
        rows.append(Row(*shared, labels[number], float(values[number]), **rest))
    return rows


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
