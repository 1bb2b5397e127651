"""The figures of a study, from what table.json holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.report.figures import Picture
from dares.routing.plots import sharpness
from dares.routing.plots.effects import dots
from dares.routing.plots.style import (
    COLOURS,
    FONT,
    INK,
    QUIET,
    legend_below,
    look,
    new_figure,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
CAPTIONS = {
    "curves": "The mean over seeds, and its 95 % interval as a band. Left out: the first tenth of "
    "the steps, where all fall alike.",
    "perplexity": "The mean over seeds with its 95 % interval. Intervals that overlap can still "
    "belong to a clear difference, since differences are paired by seed.",
    "differences": "Each variant less its baseline, paired by seed, with its 95 % interval; to "
    "the left is better. An interval that holds zero shows no difference.",
    "sharpness": "The largest weight a site gives, averaged over tokens and seeds, and the entropy "
    "of its weights as a share of the most it could be.",
}


def pictures(data: Mapping[str, Any]) -> list[Picture]:
    """All that make sense for the study."""
    rows = data["variants"]
    found = [
        Picture("curves", "Learning curves", CAPTIONS["curves"], draw_curves(rows, data["steps"])),
        Picture("perplexity", "Perplexity", CAPTIONS["perplexity"], draw_perplexity(rows)),
    ]
    compared = [row for row in rows if row["difference"] is not None]
    if any(row["difference"]["estimate"]["low"] is not None for row in compared):
        figure = draw_differences(compared)
        found.append(Picture("differences", "Differences", CAPTIONS["differences"], figure))
    routed = {row["name"]: row["sites"] for row in rows if row["sites"]}
    if routed:
        places = [place for place, row in enumerate(rows) if row["sites"]]
        figure = sharpness.draw(routed, places)
        found.append(Picture("sharpness", "Sharpness by depth", CAPTIONS["sharpness"], figure))
    return found


def draw_curves(rows: Rows, steps: int) -> Figure:
    """Validation loss over steps, a line and a band a variant, a panel a baseline."""
    groups = _by_baseline(rows)
    height = 3.6 if len(groups) == 1 else 2.6 * len(groups)
    figure, axes = new_figure(height + 0.12 * len(rows), len(groups), sharex=True, sharey=True)
    panels = dict(zip(groups, axes[:, 0], strict=True))
    for place, row in enumerate(rows):
        panel = panels[row["baseline"] or row["name"]]
        points = [point for point in row["curve"] if point["step"] >= steps / 10] or row["curve"]
        x = [point["step"] for point in points]
        style = look(place)
        panel.plot(
            x, [p["mean"] for p in points], **style, markersize=3, linewidth=1.3, label=row["name"]
        )
        if points[0]["low"] is not None:
            low, high = ([point[end] for point in points] for end in ("low", "high"))
            panel.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    for panel in panels.values():
        panel.set_ylabel("validation loss (nats a token)")
    whole_numbers(panel, "step")
    legend_below(figure, panels.values(), 2)
    return figure


def draw_perplexity(rows: Rows) -> Figure:
    """A dot and its interval a variant."""
    figure, axes = new_figure(1.0 + 0.26 * len(rows))
    panel = axes[0, 0]
    _draw_list(panel, [row["name"] for row in rows], [row["perplexity"] for row in rows])
    panel.set_xlabel("perplexity")
    return figure


def draw_differences(rows: Rows) -> Figure:
    """A dot and its interval a variant, against zero; a panel a baseline."""
    groups = _by_baseline(rows)
    figure, axes = new_figure(
        0.7 + 0.26 * len(rows) + 0.3 * len(groups),
        len(groups),
        sharex=True,
        height_ratios=[len(own) for own in groups.values()],
    )
    for panel, (baseline, own) in zip(axes[:, 0], groups.items(), strict=True):
        estimates = [row["difference"]["estimate"] for row in own]
        _draw_list(panel, [row["name"] for row in own], estimates)
        panel.set_title(f"against {baseline}", loc="left", fontsize=FONT, color=INK)
        panel.axvline(0, color=QUIET, linewidth=1)
    panel.set_xlabel("difference (nats a token)")
    return figure


def _by_baseline(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["baseline"] or row["name"], []).append(row)
    return groups


def _draw_list(panel: Any, names: Sequence[str], found: Rows) -> None:
    effects = [
        {
            "difference": each["mean"],
            "low": each["mean"] if each["low"] is None else each["low"],
            "high": each["mean"] if each["high"] is None else each["high"],
        }
        for each in found
    ]
    places = list(range(len(names)))
    dots(panel, effects, places, horizontal=True, color=COLOURS[0], marker="o")
    panel.set_yticks(places, list(names))
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.ticklabel_format(axis="x", style="plain", useOffset=False)
    panel.locator_params(axis="x", nbins=5)
