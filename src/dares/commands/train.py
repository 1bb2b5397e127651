"""dares train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dares.commands.recipes import Set
from dares.commands.terminal import console


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
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")
    ] = False,
    parallel: Annotated[
        str | None, typer.Option(help="ddp or fsdp, under torchrun.", show_default=False)
    ] = None,
    reshard: Annotated[
        bool, typer.Option(help="fsdp: free a layer's weights between forward and backward.")
    ] = True,
    track: Annotated[
        list[str] | None, typer.Option(help="Also write to tensorboard or wandb.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Where prepared data is: else $DARES_CACHE or ~/.cache/dares."),
    ] = None,
) -> None:
    """Train a recipe from scratch; the folder ends with the model, its curves and its metrics."""
    import torch

    from dares.doctor import guard_bf16
    from dares.train.folder import read_recipe
    from dares.train.loop import train
    from dares.train.overrides import apply_overrides
    from dares.train.parallel import joined
    from dares.train.recipes import recipe
    from dares.train.report import Reporter, TerminalReporter

    if name is None and not (resume and out is not None):
        raise ValueError("name a recipe (`dares recipes` lists them), or --resume with --out RUN")
    changed = list(changes or [])
    if inputs:
        changed.append(f"data.inputs={','.join(inputs)}")
    folder = out or Path("runs") / str(name)
    base = read_recipe(folder) if name is None else recipe(name)
    chosen = apply_overrides(base, changed)
    if chosen.run.precision == "bf16" and not torch.cuda.is_available():
        guard_bf16()
    with joined(parallel) as ranks:
        reporter = TerminalReporter(console) if ranks.first else Reporter()
        result = train(
            chosen,
            folder,
            ranks=ranks,
            resume=resume,
            reporter=reporter,
            track=track or (),
            reshard=reshard,
            cache=cache,
        )
        if result.finished and result.validation_loss is not None:
            reporter.say(
                f"validation loss {result.validation_loss:.4f}; the model is in {folder}/model, "
                f"its curves in {folder}/curves.png"
            )
