"""dares generate."""

from __future__ import annotations

from typing import Annotated

import typer


def generate_command(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A Hugging Face folder or name, or a run's folder."),
    ],
    prompt: Annotated[str, typer.Option(help="The text to continue.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="New tokens at most.")] = 128,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the likeliest token each time; above, it draws.")
    ] = 0.0,
    top_p: Annotated[
        float | None,
        typer.Option(help="Draw among the likeliest tokens of this probability, with temperature."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
) -> None:
    """Continue a prompt with any model, routed or not, as it is made."""
    from dares.pretrained.generate import generate

    generate(model, prompt, max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
