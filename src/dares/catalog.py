"""The presets as a table for people: what each adds, and whether conversion is exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dares.presets import PRESETS
from dares.schemes import ResidualScheme, build_scheme

LAYERS, WIDTH = 24, 1024  # the shape that the table speaks of


@dataclass(frozen=True)
class SchemeRow:
    """What `dares schemes` says of a preset, at LAYERS layers of width WIDTH."""

    reads: str
    parameters: int  # added to the model
    vectors: int  # of the stream's width that a token's pass carries beside the stream
    converts: str  # "exactly", "to rounding" or "no"
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
        converts=_conversion(small),
        paper=preset.paper,
    )


def _conversion(scheme: ResidualScheme) -> str:
    """Whether its first reads are the plain stream: tried on random numbers."""
    if scheme.identity_obstacle() is not None:
        return "no"
    numbers = torch.Generator().manual_seed(0)
    stream = torch.randn(2, 5, scheme.width, generator=numbers)
    state = scheme.start(stream)
    equal = True
    with torch.no_grad():
        for site in range(scheme.sites):
            equal &= torch.equal(scheme.read(state, site), stream)
            delta = torch.randn(stream.shape, generator=numbers)
            scheme.write(state, site, delta)
            stream = stream + delta
        equal &= torch.equal(scheme.finish(state), stream)
    return "exactly" if equal else "to rounding"
