"""How alike neighbouring sources are, for each kind of source on the same model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dares.routing.plots.style import COLOURS, INK, MARKERS, QUIET, legend_below, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(kinds: Sequence[Mapping[str, Any]]) -> Figure:
    """Above: cosine of each source with the next, over depth. Below: directions a bank spans."""
    figure, axes = new_figure(4.6, 2, height_ratios=[2, 1])
    above, below = axes[:, 0]
    for place, kind in enumerate(kinds):
        cosines = kind["neighbours"]
        # over depth from 0 to 1, since banks differ in length
        depth = (np.arange(len(cosines)) + 1) / len(cosines)
        style = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4}
        above.plot(depth, cosines, linewidth=1.4, label=kind["kind"], **style)
    above.axhline(0, color=QUIET, linewidth=0.8)
    above.set_ylim(min(-0.3, above.get_ylim()[0]), 1.05)
    above.set_ylabel("cosine with the next")
    above.set_xlabel("depth (share of the bank)")
    names = [kind["kind"] for kind in kinds]
    shares = [kind["effective_rank"] / kind["sources"] for kind in kinds]
    below.barh(names, shares, color=COLOURS[: len(kinds)], height=0.6)
    for row, kind in enumerate(kinds):
        text = f" {kind['effective_rank']:.1f} of {kind['sources']}"
        below.text(shares[row], row, text, va="center", color=INK, fontsize=8)
    below.set_xlim(0, 1.3)
    below.set_xticks([0, 0.5, 1])
    below.invert_yaxis()
    below.set_xlabel("effective rank / number of sources")
    legend_below(figure, [above])
    return figure
