"""dares plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dares.commands.recipes import Set
from dares.commands.terminal import check_folder, console

if TYPE_CHECKING:
    from dares.train.plan import Case, Plan, States

UNITS = {"mb": 10**6, "gb": 10**9, "mib": 2**20, "gib": 2**30}


def plan_command(
    name: Annotated[str, typer.Argument(help="A recipe, such as mini or 220m-delta.")],
    gpus: Annotated[int, typer.Option(help="How many GPUs share the rows of a step.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory of one: 80GB is 10^9, 80GiB 2^30.")] = "80GB",
    changes: Set = None,
    out: Annotated[
        Path | None,
        typer.Option("--json", callback=check_folder, help="Write it all to this file too."),
    ] = None,
) -> None:
    """Say what a recipe needs before it runs, and whether it fits."""
    from dares.train.overrides import apply_overrides
    from dares.train.plan import plan
    from dares.train.recipes import recipe

    chosen = apply_overrides(recipe(name), changes or [])
    found = plan(chosen, gpus=gpus, memory=parse_memory(memory))
    _show(found, memory)
    if out is not None:
        out.write_text(json.dumps(found.to_dict(), indent=1) + "\n")


def parse_memory(text: str) -> int:
    """Bytes of "80GB" or "80GiB"."""
    unit = text.strip().lstrip("0123456789. ")
    try:
        size = int(float(text.strip().removesuffix(unit)) * UNITS[unit.lower()])
    except (KeyError, ValueError):
        size = 0
    if size < 1:
        raise ValueError(f"--memory is a number and a unit, such as 80GB or 80GiB, got {text!r}")
    return size


def _show(plan: Plan, memory: str) -> None:
    recipe, counts, batch = plan.recipe, plan.parameters, plan.recipe.batch
    modes = ("ddp", "fsdp") if plan.gpus > 1 else ("ddp",)
    console.print(f"[bold]{recipe.name}[/bold]: {recipe.about}", highlight=False)
    table = Table(show_header=False, pad_edge=False)
    table.add_row("parameters", f"{counts.total:,}")
    table.add_row("  embedding", f"{counts.embedding:,}")
    table.add_row("  layers", f"{counts.layers:,}")
    table.add_row("  routers", f"{counts.routers:,}")
    for mode in modes:
        where = "" if plan.gpus == 1 else f" under {mode}"
        table.add_row(f"states{where}", _states(getattr(plan, mode)))
    table.add_row(
        "tokens a step",
        f"{plan.tokens_per_step:,} = GPUs {plan.gpus} x passes {plan.accumulation} "
        f"x rows {batch.micro_rows} x {recipe.data.row_tokens:,}",
    )
    table.add_row("FLOPs a token", f"{plan.flops:.3g}, checkpointed {plan.flops_recomputing:.3g}")
    console.print(table)
    console.print(_cases(plan, modes))
    console.print(
        f"States: held on each GPU all the time. Activations of a pass, {recipe.run.precision}, "
        "eager: kept for the backward, and their peak. (n): the most rows a pass that would fit. "
        "All of it is estimated; nothing was run.",
        highlight=False,
    )
    console.print(f"[bold]{_verdict(plan, modes, memory)}[/bold]", highlight=False)


def _cases(plan: Plan, modes: Sequence[str]) -> Table:
    table = Table(pad_edge=False)
    table.add_column("scheme")
    names = [mode if plan.gpus > 1 else "fits" for mode in modes]
    for heading in ("kept", "peak", *names):
        table.add_column(heading, justify="right")
    for case in plan.cases:
        sizes = (case.activations.kept, case.activations.peak)
        fits = (f"{_yes(case, mode)} ({getattr(case, f'{mode}_rows')})" for mode in modes)
        label = "  checkpointed" if case.checkpointing else case.scheme
        table.add_row(label, *map(_bytes, sizes), *fits)
    return table


def _verdict(plan: Plan, modes: Sequence[str], memory: str) -> str:
    """Whether the recipe fits as it is written."""
    checkpointing = plan.recipe.run.gradient_checkpointing
    own = next(
        case
        for case in plan.cases
        if case.scheme == plan.scheme and case.checkpointing == checkpointing
    )
    how = f"{plan.scheme}{', checkpointed' if checkpointing else ''}"
    where = f"{plan.gpus} x {memory}"
    if plan.gpus == 1:
        return f"{plan.recipe.name} ({how}) on {where}: fits: {_yes(own, modes[0])}"
    answers = ", ".join(f"{mode} {_yes(own, mode)}" for mode in modes)
    return f"{plan.recipe.name} ({how}) on {where}: fits under {answers}"


def _yes(case: Case, mode: str) -> str:
    return "yes" if getattr(case, f"{mode}_fits") else "no"


def _states(states: States) -> str:
    parts = [
        f"{name} {_bytes(size)}"
        for name, size in (
            ("weights", states.weights),
            ("gradients", states.gradients),
            ("AdamW", states.optimizer),
            ("gathered", states.gathered),
        )
        if size
    ]
    return f"{_bytes(states.total)}: {', '.join(parts)}"


def _bytes(size: int) -> str:
    value, unit = (size / 1e9, "GB") if size >= 10**9 else (size / 1e6, "MB")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
