"""Ratios that a noisy machine cannot spoil: every candidate once a round, medians over rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ratio:
    """A candidate's seconds, and its ratio to the baseline: median and quartiles over rounds."""

    seconds: float
    ratio: float
    low: float
    high: float


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    *,
    baseline: str,
    rounds: int,
    warmup: int = 2,
    watch: Callable[[range], Iterator[int]] = iter,
) -> dict[str, Ratio]:
    """Time each candidate once a round, after a few rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for index in watch(range(warmup + rounds)):
        for name, run in candidates.items():
            _synchronize()
            start = time.perf_counter()
            run()
            _synchronize()
            if index >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: _ratio(times, seconds[baseline]) for name, times in seconds.items()}


def _ratio(times: list[float], base: list[float]) -> Ratio:
    ratios = sorted(own / other for own, other in zip(times, base, strict=True))
    quarter = len(ratios) // 4
    return Ratio(
        statistics.median(times), statistics.median(ratios), ratios[quarter], ratios[-1 - quarter]
    )


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
