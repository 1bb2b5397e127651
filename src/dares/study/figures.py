"""The figures of a study, from what table.json holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.report.figures import Picture
from dares.routing.plots import sharpness
from dares.routing.plots.effects import dots
from dares.routing.plots.style import (
    COLOURS,
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
    """Validation loss over steps, a line and a band a variant."""
    figure, axes = new_figure(3.6 + 0.12 * len(rows))
    panel = axes[0, 0]
    for place, row in enumerate(rows):
        points = [point for point in row["curve"] if point["step"] >= steps / 10] or row["curve"]
        x = [point["step"] for point in points]
        style = look(place)
        panel.plot(
            x, [p["mean"] for p in points], **style, markersize=3, linewidth=1.3, label=row["name"]
        )
        if points[0]["low"] is not None:
            low, high = ([point[end] for point in points] for end in ("low", "high"))
            panel.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    panel.set_ylabel("validation loss (nats a token)")
    whole_numbers(panel, "step")
    legend_below(figure, panel, 2)
    return figure


def draw_perplexity(rows: Rows) -> Figure:
    """A dot and its interval a variant."""
    return _draw_list(
        [row["name"] for row in rows], [row["perplexity"] for row in rows], "perplexity"
    )


def draw_differences(rows: Rows) -> Figure:
    """A dot and its interval a variant, against zero."""
    names = [f"{row['name']} - {row['baseline']}" for row in rows]
    found = [row["difference"]["estimate"] for row in rows]
    figure = _draw_list(names, found, "difference of the loss (nats a token)")
    figure.axes[0].axvline(0, color=QUIET, linewidth=1)
    return figure


def _draw_list(names: Sequence[str], found: Rows, label: str) -> Figure:
    figure, axes = new_figure(1.0 + 0.26 * len(names))
    panel = axes[0, 0]
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
    panel.set_xlabel(label)
    panel.ticklabel_format(axis="x", style="plain", useOffset=False)
    panel.locator_params(axis="x", nbins=5)
    return figure
