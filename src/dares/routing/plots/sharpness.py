"""How sharply sites choose, by depth: one model's attention and MLP, or several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.routing.plots.style import (
    COLOURS,
    KIND_COLOURS,
    KIND_MARKERS,
    QUIET,
    kinds_of,
    legend_below,
    look,
    new_figure,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sites = Sequence[Mapping[str, Any]]  # as routing.json has them
PANELS = (
    ("largest", "mean largest weight"),
    ("normalised_entropy", "entropy / log n"),
)


def draw(models: Mapping[str, Sites], places: Sequence[int] | None = None) -> Figure:
    """Largest weight and normalised entropy over depth; 1/n and 1 are what uniform weights give.

    places: of the models in a longer list, so that they look as they do elsewhere.
    """
    figure, axes = new_figure(4.6, 2, sharex=True)
    single = len(models) == 1
    for (key, label), panel in zip(PANELS, axes[:, 0], strict=True):
        if single:
            (sites,) = models.values()
            _draw_kinds(panel, sites, key)
        else:
            _draw_models(panel, models, places or range(len(models)), key)
        panel.set_ylabel(label)
        panel.set_ylim(0, 1.05)
    whole_numbers(axes[1, 0], "depth (layers)")
    legend_below(figure, [axes[0, 0]], 4 if single else 2)
    return figure


def _draw_kinds(panel: Any, sites: Sites, key: str) -> None:
    for kind in kinds_of(sites):
        own = [site for site in sites if site["kind"] == kind]
        panel.plot(
            [site["depth"] for site in own],
            [site[key] for site in own],
            color=KIND_COLOURS.get(kind, COLOURS[3]),
            marker=KIND_MARKERS.get(kind, "^"),
            markersize=4,
            linewidth=1.4,
            label=kind,
        )
    uniform = [1 / len(site["sources"]) if key == "largest" else 1.0 for site in sites]
    depths = [site["depth"] for site in sites]
    panel.plot(depths, uniform, color=QUIET, linestyle=":", linewidth=1.4, label="uniform")


def _draw_models(panel: Any, models: Mapping[str, Sites], places: Sequence[int], key: str) -> None:
    for place, (name, sites) in zip(places, models.items(), strict=True):
        panel.plot(
            [site["depth"] for site in sites],
            [site[key] for site in sites],
            **look(place),
            markersize=3.5,
            linewidth=1.3,
            label=name,
        )
