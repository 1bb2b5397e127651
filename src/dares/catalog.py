"""The presets as a table for people: what each adds, and whether conversion is exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dares.presets import PRESETS
from dares.schemes import build_scheme

LAYERS, WIDTH = 24, 1024  # the shape that the table speaks of


@dataclass(frozen=True)
class SchemeRow:
    """What `dares schemes` says of a preset, at LAYERS layers of width WIDTH."""

    reads: str
    parameters: int  # added to the model
    vectors: int  # of the stream's width that a token's pass carries beside the stream
    converts_exactly: bool
    paper: str


def describe(name: str) -> SchemeRow:
    """What a row says is read off the scheme itself."""
    preset = PRESETS[name]
    with torch.device("meta"):
        large = build_scheme(preset.config, width=WIDTH, sites=2 * LAYERS)
    small = build_scheme(preset.config, width=8, sites=16)
    return SchemeRow(
        reads=preset.reads,
        parameters=sum(parameter.numel() for parameter in large.parameters()),
        vectors=large.carried_vectors(),
        converts_exactly=small.identity_obstacle() is None,
        paper=preset.paper,
    )
