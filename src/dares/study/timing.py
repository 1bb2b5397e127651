"""What a step costs, measured in a calm pass when all runs are done: others would disturb it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from dares.demo.compare import costs
from dares.durable import write_whole, writing
from dares.study.plan import Plan
from dares.train.loop import prepare_data
from dares.train.parallel import joined

TIMING = "timing.json"
ROUNDS = 9


def measure_costs(
    plan: Plan,
    *,
    threads: int,
    cache: Path | None = None,
    rounds: int = ROUNDS,
    watch: Callable[[range], Iterator[int]] = iter,
) -> dict[str, Any]:
    """Each variant's step time and kept activations, relative to its baseline's.

    A step of the one, a step of the other, in turn: neither has a quieter hour.
    """
    path = plan.folder / TIMING
    if path.exists():
        told: dict[str, Any] = json.loads(path.read_text())
        return told
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = _measure(plan, cache, rounds, watch)
    finally:
        torch.set_num_threads(before)
    found = {"threads": threads, "rounds": rounds, "variants": found}
    with writing(str(path)):
        write_whole(path, json.dumps(found, indent=1) + "\n")
    return found


def read_costs(plan: Plan) -> dict[str, Any]:
    """What `measure_costs` found; nothing where it was not asked."""
    path = plan.folder / TIMING
    return json.loads(path.read_text())["variants"] if path.exists() else {}


def _measure(
    plan: Plan, cache: Path | None, rounds: int, watch: Callable[[range], Iterator[int]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    recipes = {variant.name: variant.recipe for variant in plan.study.variants}
    with joined(None) as ranks:
        data = prepare_data(plan.study.variants[0].recipe, cache)
        for variant in plan.study.variants:
            # two models in memory at a time
            pair = {name: recipes[name] for name in (variant.baseline, variant.name)}
            measured = costs(
                pair, data, ranks, rounds=rounds, watch=watch, baseline=variant.baseline
            )
            own = measured[variant.name]
            found[variant.name] = {
                "step_time": own.step_time,
                "activations": own.saved / measured[variant.baseline].saved,
            }
    return found
