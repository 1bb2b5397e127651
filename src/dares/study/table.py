"""The tables of a study: text for people, the same in Markdown, on the page and on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Row = Mapping[str, Any]
PROBES = {
    "drop_all": "no routed term",
    "uniform": "uniform weights",
    "mean": "each site's mean weights",
}
_COMPARED = ("against", "difference", "reading")


@dataclass(frozen=True)
class Table:
    """A title, headings, and cells as text; `bold` rows differ from their baseline."""

    title: str
    about: str
    headings: list[str]
    rows: list[list[str]]
    bold: list[bool]


def tables(data: Mapping[str, Any]) -> list[Table]:
    """All of them, from what table.json holds."""
    rows = data["variants"]
    found = [_losses(data, rows)]
    if data["timed"]:
        found.append(_costs(rows))
    if any(row["sites"] for row in rows):
        found.append(_routing([row for row in rows if row["sites"]]))
    if data["rates"]:
        found.append(_rates(data["rates"], data["tuning_steps"], rows))
    return found


def markdown(data: Mapping[str, Any]) -> str:
    """table.md."""
    parts = [f"# {data['study']}", data["about"], setting(data)]
    for table in tables(data):
        lines = [_line(table.headings), _line(["---"] * len(table.headings))]
        for cells, bold in zip(table.rows, table.bold, strict=True):
            lines.append(_line([f"**{cells[0]}**" if bold else cells[0], *cells[1:]]))
        parts += [f"## {table.title}", table.about, "\n".join(lines)]
    if data["failed"]:
        parts.append("## Failed")
        parts.append("\n".join(f"- {name}: {error}" for name, error in data["failed"].items()))
    made = made_with(data) + ([f"```\n{data['command']}\n```"] if data["command"] else [])
    if made:
        parts += ["## Made with", *made]
    return "\n\n".join(parts) + "\n"


def made_with(data: Mapping[str, Any]) -> list[str]:
    """Versions and machines, a line each, with how many runs."""
    lines = []
    for made in data["made"]:
        runs = f"{made['runs']} run{'s' * (made['runs'] != 1)}"
        if not made["versions"]:
            lines.append(f"{runs}: not recorded.")
            continue
        names = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        lines.append(f"{runs}: {names}; on {made['machine']}.")
    return lines


def setting(data: Mapping[str, Any]) -> str:
    """What was run, in a sentence or two."""
    seeds, missing = len(data["seeds"]), len(data["missing"])
    text = (
        f"{data['family']}, {' or '.join(data['shapes'])}, vocabulary {data['vocabulary']:,}; "
        f"{data['tokens']:,} tokens a run ({data['steps']:,} steps of "
        f"{data['tokens_per_step']:,}); {seeds} seed{'s' * (seeds != 1)}."
    )
    if missing:
        text += f" Runs that are missing: {missing}."
    return text


def short(data: Mapping[str, Any]) -> Table:
    """The first of them, narrow enough for a terminal; sentences say what is compared with what."""
    whole = tables(data)[0]
    told = (heading for heading in _COMPARED if heading != "against")
    kept = [whole.headings.index(heading) for heading in ("variant", "perplexity", *told)]
    return replace(
        whole,
        headings=[whole.headings[place] for place in kept],
        rows=[[cells[place] for place in kept] for cells in whole.rows],
    )


def _losses(data: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    cells = [
        [
            row["name"],
            with_interval(row["loss"], 4),
            with_interval(row["perplexity"], 2),
            *_compared(row, "difference"),
            *(_p(row["difference"], key) for key in ("t_p", "sign_flip_p", "holm_t_p")),
        ]
        for row in rows
    ]
    least = 2 / 2 ** len(data["seeds"])
    return Table(
        "Validation loss",
        f"Nats a token, at equal tokens. {data['note']} Differences are paired by seed; with "
        f"{len(data['seeds'])} seeds sign flips cannot give a p below {least:.3g}.",
        ["variant", "loss", "perplexity", *_COMPARED, "p (t)", "p (flips)", "Holm's p"],
        cells,
        [_is_named(row["difference"]) for row in rows],
    )


def _costs(rows: Sequence[Row]) -> Table:
    cells = []
    for row in rows:
        loss = row["equal_time_loss"]
        cells.append(
            [
                row["name"],
                f"{row['parameters']:,}",
                f"{row['scheme_parameters']:,}",
                _times(row["step_time"]),
                _times(row["activations"]),
                "-" if loss is None else with_interval(loss, 4),
                *_compared(row, "equal_time_difference"),
                _p(row["equal_time_difference"], "t_p"),
            ]
        )
    return Table(
        "Cost, and loss at equal time",
        "Step time and activations kept for the backward, relative to the baseline, measured in "
        "a calm pass. Loss at equal time: where a run was when its baseline had ended, read off "
        "its curve; its learning rate had not come down yet, which a schedule made for that time "
        "would mend.",
        [
            *("variant", "parameters", "of the scheme", "step time", "activations", "loss"),
            *_COMPARED,
            "p (t)",
        ],
        cells,
        [_is_named(row["equal_time_difference"]) for row in rows],
    )


def _routing(rows: Sequence[Row]) -> Table:
    cells = [
        [
            row["name"],
            with_interval(row["largest_weight"], 3),
            *(with_interval(row["probes"][kind], 4, sign=True) for kind in PROBES),
        ]
        for row in rows
    ]
    return Table(
        "Routing",
        "The mean largest weight, and what each intervention on the trained model does to its "
        "loss on validation rows (nats a token; above zero is worse, so the routing is used). "
        "Without the routed term sites read the stream alone.",
        ["variant", "largest weight", *PROBES.values()],
        cells,
        [False] * len(cells),
    )


def _rates(rates: Sequence[float], steps: int, rows: Sequence[Row]) -> Table:
    names = [f"{rate:g}" for rate in rates]
    cells = []
    for row in rows:
        tried = row["rates"]
        losses = ["failed" if tried[name] is None else f"{tried[name]:.4f}" for name in names]
        edge = " (at the edge)" * row["rate_at_edge"]
        cells.append([row["name"], *losses, f"{row['lr']:g}{edge}"])
    return Table(
        "Learning rates",
        f"Validation loss after {steps:,} steps at each rate, with a seed of its own; the best was "
        "taken. At the edge: a rate beyond those tried may be better still.",
        ["variant", *names, "taken"],
        cells,
        [False] * len(cells),
    )


def _times(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.2f} x"


def _compared(row: Row, key: str) -> list[str]:
    found = row[key]
    if found is None:
        return [""] * len(_COMPARED)
    difference = with_interval(found["estimate"], 4, sign=True)
    return [row["baseline"], difference, found["verdict"]]


def _is_named(found: Mapping[str, Any] | None) -> bool:
    """Is it called better or worse?"""
    return found is not None and found["verdict"] in ("better", "worse")


def with_interval(found: Mapping[str, Any], digits: int, *, sign: bool = False) -> str:
    """mean [low, high], as many digits each."""
    form = f"{'+' if sign else ''}.{digits}f"
    if found["low"] is None:
        return f"{found['mean']:{form}}"
    return f"{found['mean']:{form}} [{found['low']:{form}}, {found['high']:{form}}]"


def _p(found: Mapping[str, Any] | None, key: str) -> str:
    if found is None or found[key] is None:
        return ""
    return p_text(found[key])


def p_text(p: float) -> str:
    """Three digits, and no p of zero."""
    return f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
