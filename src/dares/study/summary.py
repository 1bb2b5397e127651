"""The runs of a study as numbers: what table.json holds, and all that is shown comes from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dares.study.plan import Plan
from dares.study.statistics import Difference, Estimate, estimate, holm, paired_difference
from dares.study.study import Variant
from dares.study.timing import read_costs

Results = Mapping[int, Mapping[str, Any]]  # a variant's results, by seed
NOTE = (
    "Intervals are 95 % (Student's t over seeds) and not corrected for the number of comparisons; "
    "Holm's p is. A variant is called better or worse only where the interval of its difference "
    "does not hold zero."
)

UNRECORDED: Mapping[str, Any] = {"versions": {}, "machine": None}  # of runs from before it was kept


def summarise(plan: Plan) -> dict[str, Any]:
    """Everything there is to show; runs that are missing are left out and counted."""
    found = {variant.name: _results(plan, variant) for variant in plan.study.variants}
    if not any(found.values()):
        raise ValueError(f"no run of {plan.folder} is done yet: there is nothing to report")
    costs = read_costs(plan)
    rows = [
        _row(plan, variant, found[variant.name], found[variant.baseline], costs)
        for variant in plan.study.variants
        if found[variant.name]
    ]
    _correct(rows)
    recipe = plan.study.variants[0].recipe
    return {
        "study": plan.study.name,
        "about": plan.study.about,
        "command": plan.command,
        "made": _made(found),
        "tokens": plan.study.tokens,
        "steps": recipe.run.steps,
        "tokens_per_step": recipe.tokens_per_step,
        "family": recipe.model.family,
        "vocabulary": recipe.model.vocabulary,
        "shapes": list(dict.fromkeys(_shape(variant) for variant in plan.study.variants)),
        "seeds": list(plan.study.seeds),
        "rates": list(plan.study.rates),
        "tuning_steps": plan.recipe(plan.tuning[0]).run.steps if plan.tuning else 0,
        "timed": bool(costs),
        "missing": [run.name for run in plan.runs if not plan.is_done(run)],
        "failed": {
            run.name: error
            for run in (*plan.tuning, *plan.runs)
            if (error := plan.error(run)) is not None
        },
        "note": NOTE,
        "variants": rows,
    }


def _made(found: Mapping[str, Results]) -> list[Any]:
    """The versions and machines that runs were made with, each once, and of how many runs."""
    made = [
        result.get("made", UNRECORDED) for results in found.values() for result in results.values()
    ]
    return [
        {**one, "runs": made.count(one)}
        for place, one in enumerate(made)
        if one not in made[:place]
    ]


def _shape(variant: Variant) -> str:
    shape = variant.recipe.model
    return f"{shape.layers} layers of width {shape.width}"


def _results(plan: Plan, variant: Variant) -> Results:
    return {
        run.seed: plan.result(run)
        for run in plan.runs
        if run.variant is variant and plan.is_done(run)
    }


def _row(
    plan: Plan, variant: Variant, own: Results, base: Results, costs: Mapping[str, Any]
) -> dict[str, Any]:
    losses = {seed: result["validation_loss"] for seed, result in own.items()}
    base_losses = {seed: result["validation_loss"] for seed, result in base.items()}
    loss = estimate(list(losses.values()))
    cost = costs.get(variant.name)
    is_baseline = variant.name == variant.baseline
    at_time = None if cost is None else _at_equal_time(own, cost["step_time"])
    shared = [seed for seed in losses if seed in base_losses]
    first = next(iter(own.values()))
    return {
        "name": variant.name,
        "baseline": None if is_baseline else variant.baseline,
        "scheme": variant.recipe.depth.to_dict(),
        "parameters": first["parameters"],
        "scheme_parameters": first["scheme_parameters"],
        "lr": first["lr"],
        "rates": {f"{rate:g}": tried for rate, tried in plan.tried(variant).items()},
        "rate_at_edge": bool(plan.study.rates)
        and first["lr"] in (min(plan.study.rates), max(plan.study.rates)),
        "skipped_steps": sum(result["skipped"] for result in own.values()),
        "losses": {str(seed): value for seed, value in losses.items()},
        "loss": asdict(loss),
        "perplexity": asdict(_exponential(loss)),
        "difference": None if is_baseline else _difference(losses, base_losses, shared),
        "step_time": cost and cost["step_time"],
        "activations": cost and cost["activations"],
        "equal_time_loss": at_time and asdict(estimate(list(at_time.values()))),
        "equal_time_difference": None
        if at_time is None or is_baseline
        else _difference(at_time, base_losses, shared),
        "curve": _curve(own),
        **_routing(own),
    }


def _difference(
    own: Mapping[int, float], base: Mapping[int, float], seeds: Sequence[int]
) -> dict[str, Any] | None:
    """Seed by seed, where both have been run."""
    if not seeds:
        return None
    found = paired_difference([own[s] for s in seeds], [base[s] for s in seeds])
    return {**asdict(found), "verdict": verdict(found)}


def verdict(found: Difference) -> str:
    """In a word, and none of the two that name a winner where the interval holds zero."""
    if found.estimate.low is None:
        return "one seed"
    if not found.estimate.excludes_zero:
        return "no difference shown"
    return "better" if found.estimate.mean < 0 else "worse"


def _correct(rows: Sequence[dict[str, Any]]) -> None:
    """Holm's p over all comparisons of the study, those at equal time by themselves."""
    for key in ("difference", "equal_time_difference"):
        compared = {row["name"]: row[key] for row in rows if row[key] is not None}
        for kind in ("t_p", "sign_flip_p"):
            ps = {name: d[kind] for name, d in compared.items() if d[kind] is not None}
            corrected = holm(ps)
            for name, difference in compared.items():
                difference[f"holm_{kind}"] = corrected.get(name)


def _at_equal_time(own: Results, step_time: float) -> dict[int, float] | None:
    """Each seed's loss when the baseline had done all its steps, read off the curve.

    A variant whose steps are faster has done more by then than was run: its last loss stands in,
    an upper bound.
    """
    found = {}
    for seed, result in own.items():
        steps, losses = zip(*result["curve"], strict=True)
        reached = steps[-1] / max(1.0, step_time)
        if reached < steps[0]:
            return None  # twice as slow or worse, and the curve has no point so early
        found[seed] = float(np.interp(reached, steps, losses))
    return found


def _exponential(loss: Estimate) -> Estimate:
    """exp of the mean loss and of its interval: the perplexity's geometric mean."""
    low, high = (None if end is None else math.exp(end) for end in (loss.low, loss.high))
    return Estimate(math.exp(loss.mean), low, high, loss.seeds)


def _curve(own: Results) -> list[dict[str, Any]]:
    """The mean and interval at every step that all seeds have."""
    points = [dict(result["curve"]) for result in own.values()]
    steps = [step for step in points[0] if all(step in each for each in points)]
    return [{"step": step, **asdict(estimate([each[step] for each in points]))} for step in steps]


def _routing(own: Results) -> dict[str, Any]:
    """Sharpness by depth and over all sites, and the probes' effects: means over seeds."""
    results = list(own.values())
    sites = results[0]["sites"]
    if not sites:
        return {"sites": [], "largest_weight": None, "probes": {}}
    keys = ("largest", "normalised_entropy")
    averaged = [
        {**site, **{key: _mean([r["sites"][place][key] for r in results]) for key in keys}}
        for place, site in enumerate(sites)
    ]
    sharpness = [_mean([site["largest"] for site in result["sites"]]) for result in results]
    effects = {
        kind: asdict(estimate([result["probes"][kind] for result in results]))
        for kind in results[0]["probes"]
    }
    return {"sites": averaged, "largest_weight": asdict(estimate(sharpness)), "probes": effects}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
