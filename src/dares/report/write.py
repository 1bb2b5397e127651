"""The folder that `dares inspect` leaves behind, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dares.durable import replacing, writing
from dares.report.figures import Picture, pictures, shared_pictures
from dares.report.page import render
from dares.report.svg import svg_text

DATA, PAGE, FIGURES = "routing.json", "report.html", "figures"
DPI = 160


def check_free(folder: Path) -> None:
    """An error unless the folder is new, empty, or an earlier report that can be replaced."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another --out")
    ours = {DATA, PAGE, FIGURES}
    others = {path.name for path in folder.iterdir()} - ours if folder.is_dir() else set()
    if others:
        raise ValueError(
            f"{folder} holds {min(others)!r}, which is no part of a report: choose a new folder "
            "for --out"
        )


def write_report(data: dict[str, Any], folder: Path) -> None:
    """routing.json, report.html made of it, and its figures as PNG and SVG."""
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    shown = json.loads(text)  # the page can only show what the file holds
    own = [pictures(model) for model in shown["models"]]
    shared = shared_pictures(shown["models"])
    page = render(shown, own, shared)
    with writing(str(folder)), replacing(folder) as part:
        (part / DATA).write_text(text, encoding="utf-8")
        (part / PAGE).write_text(page, encoding="utf-8")
        (part / FIGURES).mkdir()
        several = len(own) > 1
        for number, of_model in enumerate(own):
            for picture in of_model:
                save_picture(picture, part / FIGURES, f"{number + 1}-" if several else "")
        for picture in shared:
            save_picture(picture, part / FIGURES)


def save_picture(picture: Picture, folder: Path, prefix: str = "") -> None:
    """The figure as PNG and SVG."""
    picture.figure.savefig(folder / f"{prefix}{picture.name}.png", dpi=DPI)
    path = folder / f"{prefix}{picture.name}.svg"
    path.write_text(svg_text(picture.figure, transparent=False), encoding="utf-8")
