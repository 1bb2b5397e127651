"""Run a recipe from a command: the ranks there are, what is printed on the way and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dares.commands.terminal import console

if TYPE_CHECKING:
    from dares.train.recipe import Recipe

# what commands that train have in common
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")]
Parallel = Annotated[
    str | None, typer.Option(help="ddp or fsdp, under torchrun.", show_default=False)
]
Reshard = Annotated[
    bool, typer.Option(help="fsdp: free a layer's weights between forward and backward.")
]
Track = Annotated[list[str] | None, typer.Option(help="Also write to tensorboard or wandb.")]
Cache = Annotated[
    Path | None, typer.Option(help="Where prepared data is: else $DARES_CACHE or ~/.cache/dares.")
]


def run_recipe(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool,
    parallel: str | None,
    reshard: bool,
    track: Sequence[str] | None,
    cache: Path | None,
) -> None:
    """Train it in the folder, as one of the ranks that torchrun started or alone."""
    import torch

    from dares.doctor import guard_bf16
    from dares.train.loop import train
    from dares.train.parallel import joined
    from dares.train.report import Reporter, TerminalReporter

    if recipe.run.precision == "bf16" and not torch.cuda.is_available():
        guard_bf16()
    with joined(parallel) as ranks:
        reporter = TerminalReporter(console) if ranks.first else Reporter()
        result = train(
            recipe,
            folder,
            ranks=ranks,
            resume=resume,
            reporter=reporter,
            track=track or (),
            reshard=reshard,
            cache=cache,
        )
        if result.finished and result.validation_losses is not None:
            first, last = result.validation_losses
            before = "" if recipe.start is None else f" ({first:.4f} before)"
            reporter.say(
                f"validation loss {last:.4f}{before}; the model is in {folder}/model, "
                f"its curves in {folder}/curves.png"
            )
