"""dares compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dares.commands.evaluate import (
    Batch,
    Limit,
    Local,
    Seed,
    Stride,
    Tasks,
    Texts,
    Window,
    as_request,
    command_line,
    watching,
)
from dares.commands.terminal import console

if TYPE_CHECKING:
    from dares.evals.compare import Row


def compare_command(
    models: Annotated[
        list[str],
        typer.Argument(help="Two or more models, or files of `dares eval`; the first is the base."),
    ],
    tasks: Tasks = None,
    text: Texts = None,
    window: Window = None,
    stride: Stride = None,
    limit: Limit = None,
    batch: Batch = "auto",
    local: Local = None,
    out: Annotated[
        Path, typer.Option(help="The folder for compare.md, compare.json and results.")
    ] = Path("compare"),
    seed: Seed = 0,
) -> None:
    """Compare models on the same items: differences with 95 % intervals and p-values."""
    with watching() as watcher:
        from dares.evals.contest import hold_contest

        request = None
        if tasks is not None or text:
            request = as_request(
                tasks=tasks,
                texts=text,
                window=window,
                stride=stride,
                limit=limit,
                batch=batch,
                local=local,
                seed=seed,
            )
        rows = hold_contest(
            models, request, out, seed=seed, command=command_line(), watcher=watcher
        )
    _show(rows)
    console.print(f"where: {out}/compare.md, {out}/compare.json", soft_wrap=True, highlight=False)


def _show(rows: list[Row]) -> None:
    """A line a model under each task: eighty columns are enough."""
    from dares.evals.compare import HEADINGS, LEGEND, cells

    about = HEADINGS.index("value")  # the columns before it are the same for a whole task
    table = Table(pad_edge=False)
    table.add_column(overflow="fold")
    for heading in HEADINGS[about:]:
        table.add_column(heading, no_wrap=True, justify="right")
    before = None
    for row in rows:
        task, metric, units, model, *figures = cells(row)
        if task != before:
            table.add_section()
            table.add_row(f"{task} ({metric}, {units})", style="dim")
            before = task
        shown = [figure.strip("*") for figure in figures]
        table.add_row(model, *shown, style="bold" if row.better else None)
    console.print(table)
    console.print(LEGEND)
