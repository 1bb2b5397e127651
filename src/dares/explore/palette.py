"""The colours of the page's numbers: those of the figures that `dares inspect` draws."""

from __future__ import annotations

from dares.routing.plots.style import SEQUENTIAL

STEPS = 33  # a browser mixes what is between


def colours() -> list[str]:
    """From the smallest value to the largest, as #rrggbb."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    ramp = colormaps[SEQUENTIAL]
    return [to_hex(ramp(step / (STEPS - 1))) for step in range(STEPS)]
