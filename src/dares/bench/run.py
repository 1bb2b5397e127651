"""The four benchmarks: rows in, a table out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from dares.bench.timing import Ratio, interleaved
from dares.bench.workloads import (
    Shape,
    decoding,
    depth_pass,
    model,
    saved_bytes,
    training_step,
)

Watch = Callable[[range], Iterator[int]]


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table; the ratio is to the first line of the same layers."""

    layers: int
    what: str
    value: float
    unit: str
    ratio: float
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def _timed(layers: int, results: dict[str, Ratio], *, per: int = 1) -> list[Row]:
    return [
        Row(layers, name, 1000 * r.seconds / per, "ms", r.ratio, r.low, r.high)
        for name, r in results.items()
    ]


def bench_step(
    shape: Shape, layers: Sequence[int], schemes: Sequence[str], rounds: int, watch: Watch = iter
) -> list[Row]:
    """A whole training step of each scheme, relative to standard."""
    rows = []
    for count in layers:
        sized = replace(shape, layers=count)
        steps = {name: training_step(sized, name) for name in schemes}
        rows += _timed(count, interleaved(steps, baseline="standard", rounds=rounds, watch=watch))
    return rows


def bench_op(
    shape: Shape,
    layers: Sequence[int],
    scheme: str,
    rounds: int,
    *,
    compiled: bool,
    watch: Watch = iter,
) -> list[Row]:
    """Depth mixing alone, forward and backward: how many times as long as grouped."""
    rows = []
    for count in layers:
        sized = replace(shape, layers=count)
        passes = {name: depth_pass(sized, scheme, name) for name in ("grouped", "naive")}
        if compiled:
            for name in ("grouped", "naive"):
                passes[f"{name}, compiled"] = depth_pass(sized, scheme, name, "inductor")
        rows += _timed(count, interleaved(passes, baseline="grouped", rounds=rounds, watch=watch))
    return rows


def bench_decode(
    shape: Shape, layers: Sequence[int], schemes: Sequence[str], rounds: int, watch: Watch = iter
) -> list[Row]:
    """Milliseconds a token of greedy decoding with a KV cache, relative to standard."""
    new, rows = 16, []
    for count in layers:
        sized = replace(shape, layers=count)
        runs = {name: decoding(sized, name, new=new) for name in schemes}
        results = interleaved(runs, baseline="standard", rounds=rounds, watch=watch)
        rows += _timed(count, results, per=new + 1)
    return rows


def bench_memory(
    shape: Shape, layers: Sequence[int], schemes: Sequence[str], watch: Watch = iter
) -> list[Row]:
    """Bytes kept for the backward (parameters left out), and how they grow with depth."""
    ids = torch.randint(shape.vocabulary, (shape.batch, shape.tokens))
    rows: list[Row] = []
    saved: dict[tuple[str, int], int] = {}
    for index in watch(range(len(layers))):
        sized = replace(shape, layers=layers[index])
        for name in schemes:
            network = model(sized, name).train()
            parameters = {p.untyped_storage().data_ptr() for p in network.parameters()}

            def forward(network: Any = network) -> Any:
                return network(input_ids=ids, labels=ids, use_cache=False).loss

            count = saved_bytes(forward, ignore=parameters)
            saved[name, layers[index]] = count
            base = saved["standard", layers[index]]
            rows.append(Row(layers[index], name, count / 2**20, "MiB", count / base))
    if len(layers) > 1:
        for name in schemes:
            exponent = _exponent([(n, saved[name, n]) for n in layers])
            rows.append(Row(0, f"{name}: growth with layers", exponent, "exponent", math.nan))
    return rows


def _exponent(points: Sequence[tuple[int, float]]) -> float:
    """The slope of a straight line through the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return rise / sum((x - middle_x) ** 2 for x in xs)
