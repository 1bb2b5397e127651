"""A benchmark's rows as a picture: rows in, Figure out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dares.bench.rows import EXPONENT, Row
from dares.colours import BLACK, COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW_COLOURS = (BLACK, *COLOURS)  # markers differ too
MARKERS = "osD^vP*"
PANEL = (5.2, 4.0)  # inches
DOTS_PER_INCH = 150


def check_plot(path: Path) -> None:
    """Refuse before anything is measured what could not be drawn afterwards."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"--plot writes a PNG, got {str(path)!r}: end its name in .png")


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the picture of those rows."""
    figure(rows).savefig(path, dpi=DOTS_PER_INCH)


def figure(rows: Sequence[Row]) -> Figure:
    """For each measure its values over depth and their ratios; bars where there is one depth."""
    from matplotlib.figure import Figure

    measures = list(dict.fromkeys(row.measure for row in rows))
    growing = any(row.unit == EXPONENT for row in rows)
    columns = 2 if growing else 1
    size = (PANEL[0] * columns, PANEL[1] * len(measures))
    found = Figure(figsize=size, layout="constrained")
    panels = found.subplots(len(measures), columns, squeeze=False)
    for (first, *rest), measure in zip(panels, measures, strict=True):
        own = [row for row in rows if row.measure == measure]
        if growing:
            _draw_growth(first, own)
            _draw_ratios(rest[0], own)
        else:
            _draw_bars(first, own)
    return found


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """What was measured at each depth, by name, the shallowest first."""
    lines: dict[str, list[Row]] = {}
    for row in sorted((row for row in rows if row.layers), key=lambda row: row.layers or 0):
        lines.setdefault(row.what, []).append(row)
    return lines


def _draw_growth(axes: Any, rows: Sequence[Row]) -> None:
    """Values over layers, both logarithmic: a power of depth is a straight line."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    exponents = {row.what: row.value for row in rows if row.unit == EXPONENT}
    for place, (what, line) in enumerate(_lines(rows).items()):
        depths, values = [row.layers for row in line], [row.value for row in line]
        axes.plot(depths, values, label=f"{what}  $L^{{{exponents[what]:.2f}}}$", **_style(place))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    _finish(axes, rows, ylabel=rows[0].unit, title=rows[0].measure)
    axes.legend(title="fitted growth", fontsize=8, title_fontsize=8)


def _draw_ratios(axes: Any, rows: Sequence[Row]) -> None:
    """Ratios over layers, with the middle half of the rounds; colours as in the growth's panel."""
    (base, _), *others = _lines(rows).items()
    axes.axhline(1, color=ROW_COLOURS[0], linewidth=1, linestyle="--")
    for place, (_, line) in enumerate(others, start=1):
        beside = 1.012 ** (place - len(others) / 2)  # or the spreads would hide one another
        depths, ratios = [beside * (row.layers or 0) for row in line], [row.ratio for row in line]
        axes.errorbar(depths, ratios, yerr=_spread(line), capsize=3, **_style(place))
    axes.set_xscale("log")
    title = f"{rows[0].measure}, relative to {base}"
    _finish(axes, rows, ylabel=f"times {base}", title=title)


def _draw_bars(axes: Any, rows: Sequence[Row]) -> None:
    """Ratios at one depth, the measured value beside each bar."""
    names, ratios = [row.what for row in rows], [row.ratio or 0.0 for row in rows]
    colours = [_style(place)["color"] for place in range(len(rows))]
    whiskers = {"xerr": _spread(rows), "capsize": 3, "ecolor": "#555555"}
    bars = axes.barh(names, ratios, color=colours, alpha=0.8, **whiskers)
    axes.bar_label(bars, labels=[_value(row) for row in rows], padding=6, fontsize=9)
    axes.axvline(1, color="#888888", linewidth=1, linestyle="--")
    axes.margins(x=0.5)
    axes.invert_yaxis()  # the baseline on top, as in the table
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"times {rows[0].what}")
    axes.set_title(f"{rows[0].measure}, {rows[0].layers} layers", fontsize=10)


def _value(row: Row) -> str:
    speed = f", {row.tokens_per_second:.3g} tokens/s" if row.tokens_per_second else ""
    return f"{row.value:.4g} {row.unit}{speed}"


def _style(place: int) -> dict[str, Any]:
    """How a line looks; after the seventh they begin again."""
    colour, marker = ROW_COLOURS[place % len(ROW_COLOURS)], MARKERS[place % len(MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.5}


def _spread(rows: Sequence[Row]) -> list[list[float]] | None:
    """How far the middle half reaches to either side of the ratio."""
    below, above = [], []
    for row in rows:
        if row.ratio is None or row.low is None or row.high is None:
            return None
        below.append(row.ratio - row.low)
        above.append(row.high - row.ratio)
    return [below, above]


def _finish(axes: Any, rows: Sequence[Row], *, ylabel: str, title: str) -> None:
    """The depths that were asked for, a light grid, names."""
    from matplotlib.ticker import NullLocator

    depths = sorted({row.layers for row in rows if row.layers})
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("layers")
    axes.set_ylabel(ylabel)
    axes.set_title(title, fontsize=10)
