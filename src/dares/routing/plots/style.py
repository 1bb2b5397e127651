"""How every figure looks: sizes for a phone, colours that most people can tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dares.colours import COLOURS as OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.4  # inches: on a phone a point is then about a pixel
FONT = 9
INK, QUIET = "#24292f", "#8b949e"  # the page gives these two its own colours, light or dark
COLOURS = (*OKABE_ITO, INK)  # the first is what is drawn where there is one line
MARKERS = "osD^vPX"
LINES = ("-", "--", ":", "-.")
# the kinds of sites, in the order in which they are listed
KIND_COLOURS = {"attention": COLOURS[0], "mlp": COLOURS[1], "final": COLOURS[2]}
KIND_MARKERS = {"attention": "o", "mlp": "s", "final": "D"}
SEQUENTIAL, DIVERGING = "viridis", "PuOr"


def new_figure(
    height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """A figure of the page's width and its axes [rows, columns]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for each in axes.flat:
        dress(each)
    return figure, axes


def look(place: int) -> dict[str, str]:
    """How the line of that place is drawn among others: the colours first, then other strokes."""
    round_, index = divmod(place, len(COLOURS))
    return {
        "color": COLOURS[index],
        "marker": MARKERS[index],
        "linestyle": LINES[round_ % len(LINES)],
    }


def dress(axes: Any, *, grid: bool = True) -> None:
    """Ink and quiet lines, nothing above or to the right."""
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(QUIET)
    axes.tick_params(colors=INK, labelsize=FONT - 1, color=QUIET)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(INK)
        text.set_fontsize(FONT)
    if grid:
        axes.grid(color=QUIET, alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)


def legend(axes: Any, **options: Any) -> None:
    """The legend in ink, without a frame."""
    shown = axes.legend(frameon=False, fontsize=FONT - 1, **options)
    for text in shown.get_texts():
        text.set_color(INK)


def legend_below(figure: Figure, axes: Iterable[Any], columns: int = 3) -> None:
    """One legend under all that is drawn, of what is named in these axes."""
    named: dict[str, Any] = {}
    for each in axes:
        handles, labels = each.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    if not named:
        return
    shown = figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=FONT - 1,
    )
    for text in shown.get_texts():
        text.set_color(INK)


def whole_numbers(axes: Any, label: str) -> None:
    """An axis of things that are counted: layers, steps."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel(label)


def logarithmic(axes: Any) -> None:
    """Upwards by factors, with numbers as people write them."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def kinds_of(sites: Iterable[Mapping[str, Any]]) -> list[str]:
    """The kinds of sites there are, attention first."""
    found = dict.fromkeys(site["kind"] for site in sites)
    return sorted(found, key=lambda kind: (*KIND_COLOURS, kind).index(kind))


def thinned(labels: Sequence[str], most: int) -> tuple[list[int], list[str]]:
    """Places and names of at most so many ticks, evenly spread, the first among them."""
    step = max(1, -(-len(labels) // most))
    places = list(range(0, len(labels), step))
    return places, [labels[place] for place in places]


def color_bar(figure: Figure, shown: Any, axes: Any, label: str) -> None:
    """A bar that says what the colours mean."""
    bar = figure.colorbar(shown, ax=axes, fraction=0.046, pad=0.02)
    bar.set_label(label, color=INK, fontsize=FONT - 1)
    bar.ax.tick_params(colors=INK, labelsize=FONT - 2, color=QUIET)
    bar.outline.set_visible(False)
