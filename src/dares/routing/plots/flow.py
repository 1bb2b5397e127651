"""How large things are by depth: stream, routed term, deltas; how far reads turn; gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.routing.plots.style import COLOURS, legend_below, logarithmic, new_figure, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    flow: Mapping[str, Any], sites_per_layer: int, gradient: Sequence[float] | None = None
) -> Figure:
    """Lengths (logarithmic), the angle between read and stream, and gradients if there are."""
    routed = any(flow["routed"])
    panels = 1 + routed + (gradient is not None)
    figure, axes = new_figure(0.7 + 2.0 * panels, panels, sharex=True)
    rest = iter(axes[1:, 0])
    lengths = axes[0, 0]
    _line(lengths, flow["stream"], sites_per_layer, 0, "stream")
    _line(lengths, flow["delta"], sites_per_layer, 1, "delta")
    if routed:
        _line(lengths, flow["routed"], sites_per_layer, 2, "read - stream")
        turn = next(rest)
        _line(turn, flow["turn"], sites_per_layer, 2, "turn")
        turn.set_ylabel("read turned from\nthe stream (degrees)")
        turn.set_ylim(bottom=0)
    logarithmic(lengths)
    lengths.set_ylabel("length")
    if gradient is not None:
        panel = next(rest)
        _line(panel, gradient, sites_per_layer, 3, "gradient")
        logarithmic(panel)
        panel.set_ylabel("gradient by delta")
    whole_numbers(axes[-1, 0], "depth (layers)")
    legend_below(figure, [lengths])
    return figure


def _line(panel: Any, values: Sequence[float], per_layer: int, place: int, label: str) -> None:
    points = [(site / per_layer, value) for site, value in enumerate(values) if value > 0]
    if points:
        style = {"color": COLOURS[place], "marker": "osD^"[place], "markersize": 3}
        panel.plot(*zip(*points, strict=True), linewidth=1.3, label=label, **style)
