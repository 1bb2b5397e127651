"""Mass against effect: is what gets the weight also what matters?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dares.routing.plots.effects import Effects, dots
from dares.routing.plots.style import (
    COLOURS,
    KIND_COLOURS,
    KIND_MARKERS,
    QUIET,
    kinds_of,
    legend_below,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(effects: Effects, kinds: Mapping[int, str]) -> Figure:
    """A dot for every source (at every site): mean weight across, loss without it upwards.

    kinds: attention, mlp or final, by site; an effect without a site is of a source everywhere.
    """
    figure, axes = new_figure(3.3)
    panel = axes[0, 0]
    kind_of = [kinds.get(effect["site"], "at every site") for effect in effects]
    for kind in kinds_of({"kind": kind} for kind in kind_of):
        own = [effect for effect, own in zip(effects, kind_of, strict=True) if own == kind]
        color, marker = KIND_COLOURS.get(kind, COLOURS[0]), KIND_MARKERS.get(kind, "^")
        masses = [effect["mass"] for effect in own]
        style = {"color": color, "marker": marker, "alpha": 0.8, "label": kind}
        dots(panel, own, masses, horizontal=False, **style)
    panel.axhline(0, color=QUIET, linewidth=1)
    panel.set_xlim(left=0)
    panel.set_xlabel("mass (mean weight)")
    panel.set_ylabel("change of the loss without it\n(nats a token)")
    legend_below(figure, [panel])
    return figure
