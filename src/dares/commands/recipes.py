"""dares recipes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from dares.commands.terminal import console

app = typer.Typer(help="List the training recipes, or show one.", invoke_without_command=True)
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: optim.lr=3e-4, depth=delta. May be repeated."),
]


@app.callback()
def recipes_command(context: typer.Context) -> None:
    """List the training recipes, or show one."""
    if context.invoked_subcommand is not None:
        return
    from dares.train.recipes import BASES, SCHEMES

    table = Table(pad_edge=False)
    for heading in ("recipe", "about", "layers", "tokens a step", "steps"):
        table.add_column(heading, justify="left" if heading in ("recipe", "about") else "right")
    for name, make in BASES.items():
        recipe = make()
        numbers = (recipe.model.layers, recipe.tokens_per_step, recipe.run.steps)
        table.add_row(f"[bold]{name}[/bold]", recipe.about, *(f"{n:,}" for n in numbers))
    console.print(table)
    console.print(
        f"Each is delta_block; NAME-SCHEME is another scheme: {', '.join(SCHEMES)}. "
        "`dares recipes show NAME` shows the settings, `dares plan NAME` what they cost."
    )


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="A recipe, such as mini or 220m-delta.")],
    changes: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for other programs.")] = False,
) -> None:
    """Show every setting of a recipe, as --set takes it."""
    from dares.train.overrides import apply_overrides
    from dares.train.recipes import recipe

    settings = apply_overrides(recipe(name), changes or []).to_dict()
    if as_json:
        typer.echo(json.dumps(settings, indent=1))
        return
    table = Table(show_header=False, pad_edge=False)
    for section in ("model", "depth", "data", "optim", "batch", "run"):
        for field, value in settings[section].items():
            if field != "scheme":  # a name of the depth config's class, not a field to set
                table.add_row(f"{section}.{field}", _text(value))
        table.add_section()
    console.print(f"[bold]{settings['name']}[/bold]: {settings['about']}", highlight=False)
    console.print(table)


def _text(value: Any) -> str:
    """As --set would take it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
