"""What schemes without routing weights decide: gates, read and write weights, stream mixing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dares.routing.plots import heatmap
from dares.routing.plots.style import (
    COLOURS,
    DIVERGING,
    FONT,
    INK,
    SEQUENTIAL,
    WIDTH,
    color_bar,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Decisions = Sequence[Mapping[str, Any]]  # one name's, a site each


def draw(name: str, decisions: Decisions) -> Figure:
    """A line for one number a site, a heatmap for a row, small squares for a matrix."""
    dimensions = np.ndim(decisions[0]["mean"])
    if dimensions > 1:
        return _matrices(decisions)
    if all(len(each["labels"]) == 1 for each in decisions):
        return _line(name, decisions)
    return heatmap.draw(
        [each["short"] for each in decisions],
        [each["labels"] for each in decisions],
        [each["mean"] for each in decisions],
        label=name,
        across="",
    )


def _line(name: str, decisions: Decisions) -> Figure:
    """The mean over tokens, and a band of one standard deviation."""
    figure, axes = new_figure(2.6)
    panel = axes[0, 0]
    mean = np.array([each["mean"][0] for each in decisions])
    spread = np.array([each["spread"][0] for each in decisions])
    places = np.arange(len(decisions))
    panel.plot(places, mean, color=COLOURS[0], marker="o", markersize=4, linewidth=1.4)
    panel.fill_between(places, mean - spread, mean + spread, color=COLOURS[0], alpha=0.2)
    step = max(1, len(decisions) // 12)
    panel.set_xticks(places[::step], [each["short"] for each in decisions][::step])
    panel.set_xlabel("site")
    panel.set_ylabel(name)
    panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]))
    return figure


def _matrices(decisions: Decisions) -> Figure:
    """A square a site: row, the stream that receives; column, the one that gives."""
    matrices = np.array([each["mean"] for each in decisions])
    columns = 4 if len(matrices) <= 12 else 8
    rows = -(-len(matrices) // columns)
    figure, axes = new_figure(0.6 + rows * (WIDTH - 0.6) / columns, rows, columns)
    signed = bool(matrices.min() < 0)
    top = float(np.abs(matrices).max()) or 1.0
    for panel in axes.flat:
        panel.grid(visible=False)
        panel.set_axis_off()
    for panel, matrix, each in zip(axes.flat, matrices, decisions, strict=False):
        shown = panel.imshow(
            matrix,
            cmap=DIVERGING if signed else SEQUENTIAL,
            vmin=-top if signed else 0.0,
            vmax=top,
            interpolation="nearest",
        )
        panel.set_title(each["short"], color=INK, fontsize=FONT - 1, pad=2)
    color_bar(figure, shown, axes, "weight")
    return figure
