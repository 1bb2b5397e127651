"""The page: one HTML file without a network, from what routing.json holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from dares.report.figures import Picture
from dares.report.svg import inline_svg

TEMPLATE = "page.html.jinja"


def render(
    data: Mapping[str, Any], pictures: Sequence[Sequence[Picture]], shared: Sequence[Picture]
) -> str:
    """The page of routing.json's content, with each model's pictures and those of all."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    count = 0

    def svg(picture: Picture) -> Markup:
        nonlocal count
        count += 1
        label = escape(f"{picture.title}. {picture.caption}")
        return Markup(inline_svg(picture.figure, f"f{count}", str(label)))

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(files("dares.report").joinpath(TEMPLATE).read_text("utf-8"))
    models = list(zip(data["models"], pictures, strict=True))
    return template.render(data=data, models=models, shared=shared, svg=svg)
