"""The presets as a table for people: what each adds, and whether conversion is exact."""

from __future__ import annotations

from dataclasses import dataclass

from dares.presets import PRESETS
from dares.schemes import ResidualScheme, build_scheme


@dataclass(frozen=True)
class SchemeRow:
    """What `dares schemes` says of a preset."""

    reads: str
    parameters: str
    converts_exactly: bool
    paper: str


def describe(name: str) -> SchemeRow:
    """What a row says is read off the scheme itself."""
    preset = PRESETS[name]
    scheme = build_scheme(preset.config, width=64, sites=16)
    return SchemeRow(
        reads=preset.reads,
        parameters=_parameters(scheme),
        converts_exactly=scheme.identity_obstacle() is None,
        paper=preset.paper,
    )


def _parameters(scheme: ResidualScheme) -> str:
    """The count as a formula in D and L: whole vectors of D, and scalars apart."""
    count = sum(parameter.numel() for parameter in scheme.parameters())
    if not count:
        return "none"
    vectors, scalars = divmod(count, scheme.width)
    assert not scalars, "no preset has scalar parameters: write them into the formula"
    offset = vectors - 2 * scheme.sites
    return "4DL" if not offset else f"4DL {'-' if offset < 0 else '+'} {abs(offset)}D"
