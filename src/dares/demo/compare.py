"""What the schemes are compared by at the end: what they learned and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from dares.bench.timing import interleaved
from dares.bench.workloads import saved_bytes
from dares.data.loader import Loader
from dares.data.rows import PackedData
from dares.train.engine import Engine
from dares.train.parallel import Ranks
from dares.train.recipe import Recipe


@dataclass(frozen=True)
class Cost:
    """A step's time relative to the baseline's, and the bytes that it keeps for the backward."""

    step_time: float
    saved: int


@dataclass(frozen=True)
class Outcome:
    """One scheme's line; largest_weight is None where nothing is routed."""

    scheme: str
    perplexity: float
    largest_weight: float | None
    cost: Cost


def costs(
    recipes: Mapping[str, Recipe],
    data: PackedData,
    ranks: Ranks,
    *,
    rounds: int,
    watch: Callable[[range], Iterator[int]] = iter,
    baseline: str = "standard",
) -> dict[str, Cost]:
    """Whole training steps on one batch, the schemes in turn, so that no one has a quieter hour."""
    base = recipes[baseline]
    loader = Loader(data.train, rows_per_step=base.batch.rows, seed=base.run.seed)
    engines = {name: Engine(recipe, ranks) for name, recipe in recipes.items()}
    saved = {name: _saved(engine, loader) for name, engine in engines.items()}

    def stepping(engine: Engine) -> Callable[[], object]:
        return lambda: engine.step(loader, 0)

    steps = {name: stepping(engine) for name, engine in engines.items()}
    times = interleaved(steps, baseline=baseline, rounds=rounds, warmup=1, watch=watch)
    return {name: Cost(times[name].ratio, saved[name]) for name in recipes}


def _saved(engine: Engine, loader: Loader) -> int:
    recipe, device = engine.recipe, engine.ranks.device
    parts = recipe.batch.rows // recipe.batch.micro_rows
    batch = {name: tensor.to(device) for name, tensor in loader.batch(0, 0, parts).items()}
    own = {parameter.untyped_storage().data_ptr() for parameter in engine.model.parameters()}
    return saved_bytes(lambda: engine.model(**batch).loss, ignore=own)


def table(outcomes: Sequence[Outcome]) -> Table:
    """A line a scheme; the first is what the others are compared with."""
    first = outcomes[0]
    shown = Table(pad_edge=False)
    shown.add_column("scheme", no_wrap=True)
    for heading in (
        "validation\nperplexity",
        f"against\n{first.scheme}",
        "mean largest\nweight",
        "step\ntime",
        "saved\nactivations",
    ):
        shown.add_column(heading, justify="right")
    for outcome in outcomes:
        change = outcome.perplexity / first.perplexity - 1
        weight, cost = outcome.largest_weight, outcome.cost
        shown.add_row(
            outcome.scheme,
            f"{outcome.perplexity:.1f}",
            "" if outcome is first else f"{change:+.1%}",
            "-" if weight is None else f"{weight:.2f}",
            f"{cost.step_time:.2f} x",
            f"{cost.saved / 1e6:,.0f} MB, {cost.saved / first.cost.saved:.2f} x",
        )
    return shown
