"""What a study ends in: table.md, table.json, figures and study.html."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dares.durable import replacing, write_whole, writing
from dares.report.page import render_page
from dares.report.write import save_picture
from dares.study.figures import pictures
from dares.study.plan import Plan
from dares.study.summary import summarise
from dares.study.table import made_with, markdown, p_text, setting, tables

DATA, TABLE, PAGE, FIGURES = "table.json", "table.md", "study.html", "figures"


def write_report(plan: Plan) -> dict[str, Any]:
    """Write all of it into the study's folder, from the runs that are done; what table.json holds.

    Each file is replaced whole, figures all at once.
    """
    text = json.dumps(summarise(plan), indent=1, allow_nan=False) + "\n"
    data: dict[str, Any] = json.loads(text)  # what is shown can only come from the file
    shown = pictures(data)
    page = render_page(
        "study.html.jinja",
        data=data,
        setting=setting(data),
        made=made_with(data),
        sentences=sentences(data),
        tables=tables(data),
        pictures=shown,
    )
    folder = plan.folder
    with writing(str(folder / DATA)):
        with replacing(folder / FIGURES) as part:
            for picture in shown:
                save_picture(picture, part)
        for name, content in ((DATA, text), (TABLE, markdown(data)), (PAGE, page)):
            write_whole(folder / name, content)
    return data


def sentences(data: Mapping[str, Any]) -> list[str]:
    """What the differences say, and no more."""
    found = []
    for row in data["variants"]:
        difference = row["difference"]
        if difference is None:
            continue
        name, base, mean = row["name"], row["baseline"], difference["estimate"]["mean"]
        low, high = difference["estimate"]["low"], difference["estimate"]["high"]
        if low is None:
            found.append(f"{name}: {mean:+.4f} nats to {base} with one seed, which shows nothing.")
        elif difference["verdict"] == "no difference shown":
            found.append(
                f"{name}: no difference to {base} is shown ({mean:+.4f} nats, 95 % interval "
                f"{low:+.4f} to {high:+.4f} holds zero)."
            )
        else:
            found.append(
                f"{name}: {difference['verdict']} than {base} by {abs(mean):.4f} nats (95 % "
                f"interval {low:+.4f} to {high:+.4f}; p {p_text(difference['t_p'])}, with Holm's "
                f"correction {p_text(difference['holm_t_p'])})."
            )
    return found


def where(folder: Path) -> str:
    """What was written, for a terminal."""
    return f"{folder / PAGE}, {folder / TABLE}, {folder / DATA}, {folder / FIGURES}/"
