"""dares explore."""

from __future__ import annotations

from typing import Annotated

import typer


def explore_command(
    models: Annotated[
        list[str],
        typer.Argument(help="A model's folder, a run's folder, or a name on the Hub; or two."),
    ],
    port: Annotated[int, typer.Option(help="Where to serve on 127.0.0.1; 0 takes a free one.")] = 0,
    tokens: Annotated[
        int | None, typer.Option(help="Longest text, in tokens; else 256.", show_default=False)
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """See how a model reads a text, in a page on this machine; or two side by side."""
    from dares.explore.serve import TOKENS, explore

    def ready(address: str) -> None:
        typer.echo(f"{address}  (Ctrl-C ends it)")  # at once, into a pipe as well
        if open_:
            import webbrowser

            webbrowser.open(address)

    explore(models, port=port, tokens=TOKENS if tokens is None else tokens, ready=ready)
