"""Pages: one HTML file each, without a network, from what a JSON file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from dares.report.figures import Picture
from dares.report.svg import inline_svg


def render(
    data: Mapping[str, Any], pictures: Sequence[Sequence[Picture]], shared: Sequence[Picture]
) -> str:
    """The page of routing.json's content, with each model's pictures and those of all."""
    models = list(zip(data["models"], pictures, strict=True))
    return render_page("page.html.jinja", data=data, models=models, shared=shared)


def render_page(template: str, **content: Any) -> str:
    """A template of this package filled in; its macro `figure` shows a Picture."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape

    count = 0

    def svg(picture: Picture) -> Markup:
        nonlocal count
        count += 1
        label = escape(f"{picture.title}. {picture.caption}")
        return Markup(inline_svg(picture.figure, f"f{count}", str(label)))

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: files("dares.report").joinpath(name).read_text("utf-8")),
    )
    environment.globals["svg"] = svg
    return environment.get_template(template).render(**content)
