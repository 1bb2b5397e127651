"""What a step costs, measured in a calm pass when all runs are done: others would disturb it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dares.demo.compare import costs
from dares.durable import write_whole, writing
from dares.study.plan import Plan
from dares.study.study import Variant
from dares.train.loop import prepare_data
from dares.train.parallel import joined

TIMING = "timing.json"
ROUNDS = 9
SETTINGS = ("gradient_checkpointing", "compile", "backend")


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
    found = read_costs(plan)
    left = _unmeasured(plan, found)
    if not left:
        return found
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found |= _measure(plan, left, cache, rounds, watch)
    finally:
        torch.set_num_threads(before)
    told = {
        "threads": threads,
        "rounds": rounds,
        "settings": timed_settings(plan),
        "variants": found,
    }
    path = plan.folder / TIMING
    with writing(str(path)):
        write_whole(path, json.dumps(told, indent=1) + "\n")
    return found


def read_costs(plan: Plan) -> dict[str, Any]:
    """What `measure_costs` found; nothing where it was not asked, or with other settings."""
    path = plan.folder / TIMING
    told = json.loads(path.read_text()) if path.exists() else {}
    return told["variants"] if told.get("settings") == timed_settings(plan) else {}


def timed_settings(plan: Plan) -> dict[str, Any]:
    """What a study may be gone on with that changes how long a step takes."""
    recipe = plan.study.variants[0].recipe
    run = {name: getattr(recipe.run, name) for name in SETTINGS}
    return {"micro_rows": recipe.batch.micro_rows, **run}


def _unmeasured(plan: Plan, found: Mapping[str, Any]) -> list[Variant]:
    """Variants that have a run to show, as their baselines have, and no figures yet."""
    done = {run.variant.name for run in plan.runs if plan.is_done(run)}
    return [
        variant
        for variant in plan.study.variants
        if variant.name not in found and {variant.name, variant.baseline} <= done
    ]


def _measure(
    plan: Plan,
    variants: Sequence[Variant],
    cache: Path | None,
    rounds: int,
    watch: Callable[[range], Iterator[int]],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    recipes = {variant.name: variant.recipe for variant in plan.study.variants}
    with joined(None) as ranks:
        data = prepare_data(plan.study.variants[0].recipe, cache)
        for variant in variants:
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
