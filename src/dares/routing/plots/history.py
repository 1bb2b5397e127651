"""Does routing collapse with time? Each site's sharpness over training steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dares.routing.plots.style import (
    FONT,
    INK,
    SEQUENTIAL,
    color_bar,
    legend,
    new_figure,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Sequence[Sequence[float | None]]  # [steps][sites]


def draw(steps: Sequence[int], largest: Table, entropy: Table) -> Figure:
    """A line a site, dark to bright with depth, and the mean of them."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, axes = new_figure(4.6, 2, sharex=True)
    depth = Normalize(0, max(1, len(largest[0]) - 1))
    for panel, table, label in (
        (axes[0, 0], largest, "mean largest weight"),
        (axes[1, 0], entropy, "entropy (nats)"),
    ):
        values = np.array(table, dtype=float)  # None becomes NaN: a site without a choice
        for site in range(values.shape[1]):
            if not np.isnan(values[:, site]).all():
                color: Any = colormaps[SEQUENTIAL](depth(site))
                panel.plot(steps, values[:, site], color=color, linewidth=1, marker=".")
        mean = np.nanmean(values, axis=1)
        panel.plot(steps, mean, color=INK, linewidth=2.2, linestyle="--", label="mean")
        panel.set_ylabel(label, fontsize=FONT)
        panel.set_ylim(bottom=0)
    axes[0, 0].set_ylim(0, 1.05)
    whole_numbers(axes[1, 0], "training step")
    legend(axes[0, 0], loc="lower right")
    color_bar(figure, ScalarMappable(depth, SEQUENTIAL), axes, "site")
    return figure
