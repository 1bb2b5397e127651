"""A run's folder: it belongs to the recipe that it was begun with."""

from __future__ import annotations

import json
from pathlib import Path

from dares.durable import write_whole, writing
from dares.train.recipe import Recipe

RECIPE = "recipe.json"
# these may differ when a run goes on: they change how it is computed or watched, not what it learns
FREE = {
    "batch": {"micro_rows"},
    "run": {
        "log_every",
        "eval_every",
        "checkpoint_every",
        "keep",
        "gradient_checkpointing",
        "compile",
        "backend",
        "max_bad_steps",
    },
}


def check_folder(folder: Path, recipe: Recipe, *, resume: bool, restarted: bool) -> None:
    """An error unless the folder is free, or holds the run that is to go on.

    A run that torchrun has restarted goes on with what it finds, be it nothing yet.
    """
    path = folder / RECIPE
    if not path.exists():
        if resume and not restarted and not folder.exists():
            raise ValueError(f"there is no run in {folder} to resume: check its name")
        return
    if not resume and not restarted:
        raise ValueError(
            f"{folder} holds a run already: go on with --resume, or choose another folder"
        )
    changed = differences(Recipe.from_dict(json.loads(path.read_text())), recipe)
    if changed:
        raise ValueError(
            f"the run in {folder} was begun with other settings ({'; '.join(changed)}): "
            "use those, or start a new run"
        )


def claim_folder(folder: Path, recipe: Recipe) -> None:
    """Make the folder this run's own; once it is, the recipe in it stays."""
    path = folder / RECIPE
    if not path.exists():
        with writing(str(path)):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(recipe.to_dict(), indent=1) + "\n")


def with_pinned_text(folder: Path, recipe: Recipe) -> Recipe:
    """Its datasets by their commits: a run goes on with those that it began with."""
    begun = read_recipe(folder) if (folder / RECIPE).exists() else None
    return recipe.with_pinned_text(begun)


def read_recipe(folder: Path) -> Recipe:
    """The recipe that a run's folder was begun with."""
    try:
        return Recipe.from_dict(json.loads((folder / RECIPE).read_text()))
    except OSError as error:
        raise ValueError(f"there is no run in {folder} to resume: check its name") from error


def differences(begun: Recipe, now: Recipe) -> list[str]:
    """The settings that make another run of it, as "path: was, is"."""
    before, after = begun.to_dict(), now.to_dict()
    found = []
    for section in ("start", "model", "depth", "data", "optim", "batch", "run"):
        was, now_is = before.get(section, {}), after.get(section, {})
        for field in sorted({*was, *now_is} - FREE.get(section, set())):
            old, new = was.get(field), now_is.get(field)
            if old != new:
                found.append(f"{section}.{field} was {old}, is {new}")
    return found
