"""The four benchmarks: a shape and depths in, rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dares.bench.peak import check_peak, peak_growth
from dares.bench.rows import Row, with_growth
from dares.bench.timing import interleaved
from dares.bench.workloads import (
    Shape,
    decoding,
    depth_pass,
    loss,
    model,
    random_ids,
    saved_bytes,
    training_step,
)

Watch = Callable[[range], Iterator[int]]


def bench_step(
    shape: Shape, layers: Sequence[int], schemes: Sequence[str], rounds: int, watch: Watch = iter
) -> list[Row]:
    """A whole training step of each scheme, relative to standard."""
    rows = []
    for count in layers:
        sized = replace(shape, layers=count)
        steps = {name: training_step(sized, name) for name in schemes}
        rows += _timed("training step", count, steps, rounds, watch)
    return with_growth(rows)


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
        rows += _timed(f"depth mixing of {scheme}", count, passes, rounds, watch)
    return with_growth(rows)


def bench_decode(
    shape: Shape, layers: Sequence[int], schemes: Sequence[str], rounds: int, watch: Watch = iter
) -> list[Row]:
    """Milliseconds a token of greedy decoding with a KV cache, relative to standard."""
    new, rows = 16, []
    for count in layers:
        sized = replace(shape, layers=count)
        runs = {name: decoding(sized, name, new=new) for name in schemes}
        timed = _timed("decoding a token", count, runs, rounds, watch, per=new + 1)
        rows += [replace(row, tokens_per_second=1000 / row.value) for row in timed]
    return with_growth(rows)


def bench_memory(
    shape: Shape,
    layers: Sequence[int],
    schemes: Sequence[str],
    *,
    peak: bool,
    watch: Watch = iter,
) -> list[Row]:
    """Bytes kept for the backward (parameters left out), and the peak of a process's memory."""
    measures = {"kept for the backward": kept_bytes}
    if peak:
        check_peak()
        measures["peak memory of a step"] = peak_growth
    cases = [(m, count, name) for m in measures for count in layers for name in schemes]
    found: dict[tuple[str, int, str], int] = {}
    for index in watch(range(len(cases))):
        measure, count, name = cases[index]
        found[cases[index]] = measures[measure](replace(shape, layers=count), name)
    return with_growth(
        [
            Row(count, name, measure, size / 2**20, "MiB", size / found[measure, count, schemes[0]])
            for (measure, count, name), size in found.items()
        ]
    )


def kept_bytes(shape: Shape, scheme: str) -> int:
    """Bytes that a model's forward keeps for its backward, parameters left out."""
    network, ids = model(shape, scheme).train(), random_ids(shape)
    parameters = {p.untyped_storage().data_ptr() for p in network.parameters()}
    return saved_bytes(lambda: loss(network, ids), ignore=parameters)


def _timed(
    measure: str,
    layers: int,
    candidates: Mapping[str, Callable[[], Any]],
    rounds: int,
    watch: Watch,
    *,
    per: int = 1,
) -> list[Row]:
    """A row for each candidate; the first is what the others are compared with."""
    results = interleaved(candidates, baseline=next(iter(candidates)), rounds=rounds, watch=watch)
    return [
        Row(layers, name, measure, 1000 * r.seconds / per, "ms", r.ratio, r.low, r.high)
        for name, r in results.items()
    ]
