"""A figure as SVG inside a page, in the page's own colours."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from dares.routing.plots.style import INK, QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RASTER_DPI = 150  # of the heatmaps inside


def svg_text(figure: Figure, *, transparent: bool) -> str:
    """The figure as an SVG file, the same at every run."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "dares", "svg.fonttype": "path"}):
        figure.savefig(
            out, format="svg", transparent=transparent, dpi=RASTER_DPI, metadata={"Date": None}
        )
    return out.getvalue()


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """To stand in an HTML page: scales with it, follows light and dark, has its own ids.

    label: what a screen reader says; already escaped.
    """
    text = svg_text(figure, transparent=True)
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = text.replace(INK, "var(--ink)").replace(QUIET, "var(--quiet)")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'href="#', f'href="#{prefix}-', text)
    text = text.replace("url(#", f"url(#{prefix}-")
    text = re.sub(r'<svg([^>]*?) width="[\d.]+pt"', r"<svg\1", text, count=1)
    text = re.sub(r'<svg([^>]*?) height="[\d.]+pt"', r"<svg\1", text, count=1)
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
