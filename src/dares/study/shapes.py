"""Models of other depths with as many parameters."""

from __future__ import annotations

import math
from dataclasses import replace

from dares.presets import preset
from dares.train.plan import count_parameters
from dares.train.recipe import ModelShape, Recipe


def same_parameters(base: Recipe, layers: int) -> Recipe:
    """The recipe with that many layers, narrower or wider, and the MLP fitted to the count.

    Heads keep their number. The standard scheme is counted: routers are left aside.
    """
    wanted = _count(base, base.model)
    shape = base.model
    # most weights are in the layers' matrices, whose number goes with layers x width^2
    guess = shape.width * math.sqrt(shape.layers / layers)
    unit = 2 * shape.heads  # heads of an even width
    best = None
    for width in (unit * max(1, round(guess / unit) + step) for step in (0, -1, 1)):
        fitted = _fit_mlp(base, shape, layers, width, wanted)
        # of widths near the guess, the one whose MLP is most like the base's
        likeness = abs(math.log(fitted.mlp / width * shape.width / shape.mlp))
        if best is None or likeness < best[0]:
            best = likeness, fitted
    assert best is not None
    found = best[1]
    off = abs(_count(base, found) / wanted - 1)
    if off > 0.02:
        raise ValueError(
            f"no model of {layers} layers has {wanted:,} parameters to within 2 % (nearest: "
            f"{off:.1%} off): take a larger base recipe"
        )
    return replace(base, model=found)


def _fit_mlp(base: Recipe, shape: ModelShape, layers: int, width: int, wanted: int) -> ModelShape:
    """The MLP is what is left for it: parameters grow with its width along a straight line."""
    head = width // shape.heads
    narrow = replace(shape, layers=layers, width=width, head_dim=head, mlp=1)
    least = _count(base, narrow)
    slope = _count(base, replace(narrow, mlp=2)) - least
    return replace(narrow, mlp=max(1, 1 + round((wanted - least) / slope)))


def _count(base: Recipe, shape: ModelShape) -> int:
    return count_parameters(replace(base, model=shape, depth=preset("standard"))).total
