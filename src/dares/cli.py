"""The command line: parse, call, print."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dares.commands import (
    bench,
    compare,
    convert,
    evaluate,
    explore,
    finetune,
    generate,
    inspect,
    plan,
    prepare,
    recipes,
    study,
    train,
)
from dares.commands.terminal import console
from dares.presets import PRESETS
from dares.version import VERSION

app = typer.Typer(
    help="Delta Attention Residuals: residual connections that learn which earlier layers to read.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("prepare")(prepare.prepare)
app.add_typer(recipes.app, name="recipes")
app.command("plan")(plan.plan_command)
app.command("train")(train.train_command)
app.command("finetune")(finetune.finetune_command)
app.command("convert")(convert.convert_command)
app.command("generate")(generate.generate_command)
app.command("eval")(evaluate.evaluate_command)
app.command("compare")(compare.compare_command)
app.command("inspect")(inspect.inspect_command)
app.command("explore")(explore.explore_command)
app.add_typer(study.app, name="study")
app.add_typer(bench.app, name="bench")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dares {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


@app.command()
def schemes() -> None:
    """List the residual schemes that a model can use."""
    from dares.catalog import LAYERS, WIDTH, describe

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("scheme, and what a sublayer reads")
    for heading in ("parameters", "vectors"):
        table.add_column(heading, justify="right")
    table.add_column("converts", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    for name in PRESETS:
        row = describe(name)
        told = f"[bold]{name}[/bold]: {row.reads}"
        table.add_row(told, f"{row.parameters:,}", str(row.vectors), row.converts, row.paper)
    console.print(table)
    console.print(
        f"parameters: added to {LAYERS} layers of width {WIDTH}. vectors: of that width, which a "
        "token's pass carries beside the stream. converts exactly: a pretrained model keeps its "
        "logits (merge='gate' with final='stream' makes it so for any routed scheme)."
    )


@app.command()
def doctor() -> None:
    """Show versions and devices, and try what is known to fail on some machines."""
    from dares.doctor import examine

    findings = examine()
    table = Table(show_header=False, pad_edge=False)
    for finding in findings:
        table.add_row(finding.name, finding.value if finding.ok else f"[red]{finding.value}[/red]")
    console.print(table)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo() -> None:
    """Train the same small model under four residual schemes, side by side."""
    from dares.demo import run

    run(console)


def main() -> None:
    """The entry point: a user's mistake is one line, not a traceback."""
    try:
        app()
    except ValueError as error:
        Console(stderr=True).print(
            f"[red]error:[/red] {escape(str(error))}", soft_wrap=True, highlight=False
        )
        sys.exit(2)
