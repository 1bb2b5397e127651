"""From what a user asks for to a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dares.names import unknown_name
from dares.study.own import make_study
from dares.study.study import Study, with_absolute_paths
from dares.train.overrides import apply_overrides
from dares.train.recipe import Recipe
from dares.train.recipes import recipe

FACTORS = (1 / 3, 1.0, 3.0)  # of the recipe's rate, which --tune lr tries


@dataclass(frozen=True)
class Request:
    """The flags of `dares study`, as they were written; None: not given."""

    name: str
    recipe: str = "mini"
    inputs: Sequence[str] = ()
    changes: Sequence[str] = ()
    seeds: int | None = None
    tokens: int | None = None
    variants: str | None = None
    tune: str | None = None
    rates: str | None = None
    tune_share: float | None = None


def build_study(request: Request) -> Study:
    """The study that is asked for."""
    base = _base(request)
    study = make_study(request.name, base)
    if request.variants is not None:
        study = study.only(request.variants.split(","))
    if request.seeds is not None:
        if request.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {request.seeds}")
        study = replace(study, seeds=tuple(range(request.seeds)))
    rates = _rates(request, base)
    if not rates:
        return study
    share = study.tuning_share if request.tune_share is None else request.tune_share
    return replace(study, rates=rates, tuning_share=share)


def _base(request: Request) -> Recipe:
    base = apply_overrides(recipe(request.recipe), request.changes)
    base = with_absolute_paths(base.with_inputs(request.inputs) if request.inputs else base)
    if request.tokens is not None:
        if request.tokens < 1:
            raise ValueError(f"--tokens must be at least 1, got {request.tokens}")
        steps = math.ceil(request.tokens / base.tokens_per_step)
        base = replace(base, run=replace(base.run, steps=steps))
    if base.optim.warmup >= base.run.steps:
        raise ValueError(
            f"the warm-up of {base.optim.warmup} steps is not shorter than a run of "
            f"{base.run.steps}: give more --tokens, or a smaller --set optim.warmup="
        )
    return base


def _rates(request: Request, base: Recipe) -> tuple[float, ...]:
    if request.tune is None:
        for flag, given in (("--rates", request.rates), ("--tune-share", request.tune_share)):
            if given is not None:
                raise ValueError(f"{flag} is for --tune lr: add that, or leave {flag} out")
        return ()
    if request.tune != "lr":
        raise ValueError(unknown_name("--tune", request.tune, ["lr"]))
    if request.rates is None:
        # as many digits as a folder's name shows
        return tuple(float(f"{base.optim.lr * factor:g}") for factor in FACTORS)
    try:
        return tuple(float(part) for part in request.rates.split(","))
    except ValueError:
        raise ValueError(
            f"--rates must be numbers with commas between them, got {request.rates!r}"
        ) from None
