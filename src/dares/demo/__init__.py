"""`dares demo`: the same small model trained under four residual schemes, side by side."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from dares.data.prepare import prepare
from dares.demo.board import Board
from dares.demo.compare import Cost, Outcome, costs, table
from dares.train.curves import draw
from dares.train.folder import RECIPE
from dares.train.loop import train
from dares.train.metrics import FILE, read_metrics
from dares.train.overrides import apply_overrides
from dares.train.parallel import joined
from dares.train.recipe import Recipe
from dares.train.recipes import recipe

SCHEMES = ("standard", "attnres_block", "delta_block", "delta")
CAVEAT = (
    "A run this small shows that the machinery works, not the paper's result: a tiny model, one "
    "seed and so few steps do not say which scheme is better."
)


def run(
    console: Console,
    *,
    changes: Sequence[str] = (),
    folder: str | Path = "runs/demo",
    cache: str | Path | None = None,
    rounds: int = 5,
) -> list[Outcome]:
    """Train `mini` under each scheme in FOLDER/SCHEME; a table, and a picture in FOLDER.

    changes: settings of the recipe, as --set takes them. rounds: of the timed steps that count.
    """
    folder = Path(folder)
    recipes = {name: apply_overrides(recipe(f"mini-{name}"), changes) for name in SCHEMES}
    _introduce(console, recipes["standard"])
    _start_over(console, folder)
    with joined(None) as ranks, Board(console, SCHEMES) as board:
        data = prepare(**vars(recipes["standard"].data), cache=cache, progress=board.preparing)
        board.prepared(data)
        losses = {}
        for name, chosen in recipes.items():
            reporter = board.reporter(name)
            result = train(chosen, folder / name, ranks=ranks, reporter=reporter, cache=cache)
            if not result.finished or result.validation_loss is None:
                raise SystemExit("the demo was stopped; the next one starts over")
            losses[name] = result.validation_loss
        measured = costs(recipes, data, ranks, rounds=rounds, watch=board.timing)
    metrics = {name: read_metrics(folder / name / FILE) for name in SCHEMES}
    outcomes = [_outcome(name, losses[name], metrics[name], measured[name]) for name in SCHEMES]
    title = "One model, four residual schemes: dares demo"
    draw(metrics, title).savefig(folder / "curves.png", dpi=130)
    console.print(table(outcomes))
    console.print(f"curves: {folder}/curves.png   models: {folder}/SCHEME/model", highlight=False)
    console.print(CAVEAT)
    return outcomes


def _introduce(console: Console, base: Recipe) -> None:
    shape, text = base.model, ", ".join(base.data.inputs) or "Python's standard library"
    console.print(
        f"[bold]One model, four residual schemes[/bold]: {shape.layers} layers of width "
        f"{shape.width}, {base.run.steps} steps of {base.tokens_per_step:,} tokens, "
        f"the same start and the same batches; text: {text}",
        highlight=False,
    )


def _start_over(console: Console, folder: Path) -> None:
    """Remove the runs of an earlier demo, and nothing else."""
    earlier = [folder / name for name in SCHEMES if (folder / name / RECIPE).exists()]
    if earlier:
        console.print(f"{folder} holds an earlier demo: starting over", highlight=False)
    for path in earlier:
        shutil.rmtree(path)


def _outcome(name: str, loss: float, lines: list[dict[str, Any]], cost: Cost) -> Outcome:
    weights = [line["largest_weight"] for line in lines if "largest_weight" in line]
    return Outcome(name, math.exp(loss), weights[-1] if weights else None, cost)
