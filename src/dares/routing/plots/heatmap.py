"""Weights as a table of colours: sites down, what they read across (the paper's Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dares.routing.plots.style import (
    DIVERGING,
    FONT,
    SEQUENTIAL,
    WIDTH,
    color_bar,
    new_figure,
    thinned,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAST = ("running", "null")  # sources that are there at most sites: to the right of all others
ROOM = 10  # cells across, up to which their numbers are written into them


def draw(
    sites: Sequence[str],
    sources: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]],
    *,
    label: str = "mean weight",
    across: str = "source",
) -> Figure:
    """A row a site; a cell is empty where a site cannot read that source."""
    columns = source_order(sources)
    table = np.full((len(sites), len(columns)), np.nan)
    for row, (names, values) in enumerate(zip(sources, weights, strict=True)):
        table[row, [columns.index(name) for name in names]] = values
    figure, axes = new_figure(_height(*table.shape))
    panel = axes[0, 0]
    panel.grid(visible=False)
    shown = _show(panel, table)
    places, names = thinned(columns, 26)
    panel.set_xticks(places, names, rotation=90)
    panel.set_yticks(*thinned(list(sites), 30))
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    panel.set_xlabel(across)
    panel.set_ylabel("site")
    if len(columns) <= ROOM:
        _write_numbers(panel, table, shown)
    color_bar(figure, shown, panel, label)
    return figure


def source_order(sources: Sequence[Sequence[str]]) -> list[str]:
    """Every source once, as they appear with depth."""
    found = list(dict.fromkeys(name for names in sources for name in names))
    return sorted(found, key=lambda name: LAST.index(name) + 1 if name in LAST else 0)


def _height(rows: int, columns: int) -> float:
    """Inches: rows of even height, room for the names below."""
    return 1.5 + min(max(rows * (WIDTH - 1.6) / max(columns, 6), 0.17 * rows), 0.26 * rows + 0.6)


def _show(panel: Any, table: np.ndarray) -> Any:
    signed = bool(np.nanmin(table) < 0)
    top = float(np.nanmax(np.abs(table))) or 1.0
    return panel.imshow(
        table,
        cmap=DIVERGING if signed else SEQUENTIAL,
        vmin=-top if signed else 0.0,
        vmax=top,
        aspect="auto",
        interpolation="nearest",
    )


def _write_numbers(panel: Any, table: np.ndarray, shown: Any) -> None:
    for (row, column), value in np.ndenumerate(table):
        if np.isnan(value):
            continue
        red, green, blue, _ = shown.cmap(shown.norm(value))
        light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        color = "#101010" if light else "#fafafa"
        text = f"{value:.2f}"
        panel.text(column, row, text, ha="center", va="center", color=color, fontsize=FONT - 2.5)
