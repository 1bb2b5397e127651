"""What interventions do to the loss: a dot and its interval each, by name or over depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.routing.plots.sharpness import Sites
from dares.routing.plots.style import (
    COLOURS,
    KIND_COLOURS,
    KIND_MARKERS,
    QUIET,
    kinds_of,
    legend_below,
    new_figure,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Effects = Sequence[Mapping[str, Any]]
AXIS = "change of the loss (nats a token)"


def draw_list(effects: Effects) -> Figure:
    """One line an intervention, the first on top."""
    figure, axes = new_figure(1.0 + 0.24 * len(effects))
    panel = axes[0, 0]
    dots(panel, effects, list(range(len(effects))), horizontal=True, color=COLOURS[0], marker="o")
    panel.set_yticks(range(len(effects)), [effect["name"] for effect in effects])
    panel.set_ylim(len(effects) - 0.5, -0.5)
    panel.axvline(0, color=QUIET, linewidth=1)
    panel.set_xlabel(AXIS)
    panel.ticklabel_format(axis="x", style="plain", useOffset=False)
    panel.locator_params(axis="x", nbins=5)
    return figure


def draw_by_site(effects: Effects, sites: Sites) -> Figure:
    """Over depth: each effect belongs to one site."""
    by_index = {site["index"]: site for site in sites}
    figure, axes = new_figure(2.9)
    panel = axes[0, 0]
    for kind in kinds_of(sites):
        own = [effect for effect in effects if by_index[effect["site"]]["kind"] == kind]
        depths = [by_index[effect["site"]]["depth"] for effect in own]
        color, marker = KIND_COLOURS.get(kind, COLOURS[3]), KIND_MARKERS.get(kind, "^")
        dots(panel, own, depths, horizontal=False, color=color, marker=marker, label=kind)
    panel.axhline(0, color=QUIET, linewidth=1)
    whole_numbers(panel, "depth (layers)")
    panel.set_ylabel("change of the loss\n(nats a token)")
    legend_below(figure, [panel])
    return figure


def dots(
    panel: Any, effects: Effects, places: Sequence[float], *, horizontal: bool, **style: Any
) -> None:
    """Differences at those places, with their intervals."""
    values = [effect["difference"] for effect in effects]
    reach = [
        [max(0.0, effect["difference"] - effect["low"]) for effect in effects],
        [max(0.0, effect["high"] - effect["difference"]) for effect in effects],
    ]
    x, y = (values, places) if horizontal else (places, values)
    errors = {"xerr" if horizontal else "yerr": reach}
    panel.errorbar(x, y, **errors, linestyle="none", markersize=4.5, elinewidth=1.2, **style)
