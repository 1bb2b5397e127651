"""dares finetune."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dares.commands.recipes import Set
from dares.commands.running import Cache, Parallel, Reshard, Resume, Track, run_recipe
from dares.names import unknown_name

if TYPE_CHECKING:
    from dares.train.recipe import Recipe

LORA = {"r": "start.lora_rank", "alpha": "start.lora_alpha", "targets": "start.lora_targets"}
EXAMPLE = "r=16,alpha=32,targets=q_proj+v_proj"


def finetune_command(
    model: Annotated[
        str, typer.Argument(help="What `dares convert` made, any Hugging Face model, or a run.")
    ],
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Text to train on, as in `dares prepare`; may be repeated. --resume needs none."
        ),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="Convert a plain model to this preset on the way.")
    ] = None,
    freeze: Annotated[
        str | None,
        typer.Option(
            help="base: routers alone learn; routers: all but them; if not said, all learn."
        ),
    ] = None,
    lora: Annotated[
        str | None,
        typer.Option(help=f"The base learns by LoRA of rank r: {EXAMPLE}, or r=16 alone."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps; else 1000.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; else 5e-5.")] = None,
    router_lr: Annotated[float | None, typer.Option(help="That of routers; else 5e-3.")] = None,
    changes: Set = None,
    resume: Resume = False,
    parallel: Parallel = None,
    reshard: Reshard = True,
    track: Track = None,
    cache: Cache = None,
) -> None:
    """Train a pretrained model further: whole, its routers alone, or by LoRA."""
    from dares.train.overrides import apply_overrides
    from dares.train.recipes.finetune import finetune

    recipe = _begun(run, model, data) if resume else finetune(model, data or [], steps=steps)
    given = {
        "depth": scheme,
        "run.steps": steps,
        "optim.lr": lr,
        "optim.router_lr": router_lr,
        "start.freeze": freeze,
        **_lora_settings(lora),
    }
    said = [f"{path}={value}" for path, value in given.items() if value is not None]
    run_recipe(
        apply_overrides(recipe, [*said, *(changes or [])]),
        run,
        resume=resume,
        parallel=parallel,
        reshard=reshard,
        track=track,
        cache=cache,
    )


def _begun(run: Path, model: str, data: list[str] | None) -> Recipe:
    """The recipe of the run that goes on; of what is said again, differences are refused later."""
    from dares.train.folder import read_recipe

    recipe = read_recipe(run)
    if recipe.start is None:
        raise ValueError(f"{run} is a run of `dares train`: go on with that")
    recipe = replace(recipe, start=replace(recipe.start, checkpoint=model))
    return recipe.with_inputs(data) if data else recipe


def _lora_settings(text: str | None) -> dict[str, str]:
    """Path -> value of "r=16,alpha=32,targets=q_proj+v_proj"."""
    settings = {}
    for part in text.split(",") if text is not None else ():
        name, equals, value = part.partition("=")
        if name not in LORA:
            raise ValueError(unknown_name("--lora setting", name, LORA))
        if not equals:
            raise ValueError(f"--lora is written {EXAMPLE}, got {text!r}")
        settings[LORA[name]] = value.replace("+", ",")
    if text is not None and LORA["r"] not in settings:
        raise ValueError(f"--lora needs a rank, as in {EXAMPLE}, got {text!r}")
    return settings
