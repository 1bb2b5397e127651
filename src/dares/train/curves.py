"""The curves of a run, or of several side by side: metrics in, Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.colours import BLACK, COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = Mapping[str, Any]
RUN_COLOURS = (BLACK, *COLOURS)
PANELS = (
    ("loss", "training loss (nats a token)"),
    ("validation_loss", "validation loss (nats a token)"),
    ("gradient_norm", "gradient norm"),
    ("largest_weight", "mean largest routing weight"),
)


def draw(runs: Mapping[str, Sequence[Line]], title: str) -> Figure:
    """Four panels over steps, one colour a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, 2)
    for (key, label), panel in zip(PANELS, axes.flat, strict=True):
        for colour, (name, lines) in zip(RUN_COLOURS, runs.items(), strict=False):
            points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
            if points:
                marker = "o" if len(points) < 12 else None
                panel.plot(
                    *zip(*points, strict=True),
                    color=colour,
                    label=name,
                    marker=marker,
                    markersize=3,
                    linewidth=1.4,
                )
        panel.set_title(label, fontsize=10)
        panel.set_xlabel("step", fontsize=9)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
        if not panel.lines:
            panel.text(
                0.5,
                0.5,
                "no routing in this scheme" if key == "largest_weight" else "none",
                transform=panel.transAxes,
                ha="center",
                color="#666666",
            )
    if len(runs) > 1:
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(runs), frameon=False)
    return figure
