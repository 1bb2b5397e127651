"""dares train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dares.commands.recipes import Set
from dares.commands.running import Cache, Parallel, Reshard, Resume, Track, run_recipe

if TYPE_CHECKING:
    from dares.train.recipe import Recipe


def train_command(
    name: Annotated[
        str | None, typer.Argument(help="A recipe, such as mini or 220m-delta.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="Text to train on, as in `dares prepare`; none: the recipe's own."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; else runs/NAME.", show_default=False)
    ] = None,
    changes: Set = None,
    resume: Resume = False,
    parallel: Parallel = None,
    reshard: Reshard = True,
    track: Track = None,
    cache: Cache = None,
) -> None:
    """Train a recipe from scratch; the folder ends with the model, its curves and its metrics."""
    from dares.train.overrides import apply_overrides

    if name is None and not (resume and out is not None):
        raise ValueError("name a recipe (`dares recipes` lists them), or --resume with --out RUN")
    folder = out or Path("runs") / str(name)
    asked = apply_overrides(_base(name, folder, resume), changes or [])
    run_recipe(
        asked.with_inputs(inputs) if inputs else asked,
        folder,
        resume=resume,
        parallel=parallel,
        reshard=reshard,
        track=track,
        cache=cache,
    )


def _base(name: str | None, folder: Path, resume: bool) -> Recipe:
    """The named recipe; where a run of it goes on, the one that the run was begun with."""
    from dares.train.folder import RECIPE, read_recipe
    from dares.train.recipes import recipe

    if name is None:
        return read_recipe(folder)
    named = recipe(name)
    if not resume or not (folder / RECIPE).exists():
        return named
    begun = read_recipe(folder)
    if begun.name != named.name:
        raise ValueError(
            f"the run in {folder} is one of {begun.name!r}, not of {named.name!r}: "
            "name that one, or another folder"
        )
    return begun
