"""dares inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dares.commands.evaluate import command_line, watching
from dares.commands.terminal import console


def inspect_command(
    models: Annotated[
        list[str], typer.Argument(help="Models' folders, runs' folders, or names on the Hub.")
    ],
    text: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file or folder to run them over; may be repeated. Without one, only what a "
            "run's metrics tell is drawn."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("inspection"),
    tokens: Annotated[
        int | None, typer.Option(help="Tokens to look at; else 12,288.", show_default=False)
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="Tokens a window; else 256 or the model's positions.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Windows at once; else 4.", show_default=False)
    ] = None,
    probes: Annotated[
        str | None,
        typer.Option(
            help="none; fast: of the model, each site, each source; all: of every source at every "
            "site too. Else fast where there is routing.",
            show_default=False,
        ),
    ] = None,
    token: Annotated[
        int | None, typer.Option(help="The token whose own weights are shown, counted from 0.")
    ] = None,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Gradient norms by depth too.")
    ] = False,
) -> None:
    """See what a model's routing does, and whether it matters: figures and one page."""
    with watching() as watcher:
        from dares.report.inspection import ROWS, TOKENS, Request, inspect
        from dares.report.write import PAGE, check_free, write_report

        request = Request(
            models=models,
            texts=text or (),
            tokens=TOKENS if tokens is None else tokens,
            window=window,
            rows=ROWS if batch is None else batch,
            probes=probes,
            token=token,
            gradients=gradients,
            command=command_line(),
        )
        check_free(out)
        data = inspect(request, watcher)
        write_report(data, out)
    for model in data["models"]:
        for finding in model["findings"]:
            title = (f"{model['name']}: {finding['title']}", "bold")
            console.print(Text.assemble(title, f". {finding['text']}"))
    console.print(f"where: {out / PAGE}", soft_wrap=True, highlight=False)
