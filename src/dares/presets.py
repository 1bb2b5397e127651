"""Paper name -> config: a variant is a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dares.config import (
    DdlConfig,
    DenseConfig,
    DepthConfig,
    HyperConfig,
    MhcConfig,
    SchemeConfig,
    StandardConfig,
)
from dares.names import unknown_name


@dataclass(frozen=True)
class Preset:
    """A named config, what a sublayer reads under it, and the paper it comes from."""

    config: SchemeConfig
    reads: str
    paper: str


PRESETS: dict[str, Preset] = {
    "standard": Preset(
        StandardConfig(),
        "the stream",
        "1512.03385",
    ),
    "attnres": Preset(
        DepthConfig(sources="sublayer", merge="replace", final="routed"),
        "a softmax over all earlier outputs; so does the final norm",
        "2603.15031",
    ),
    "attnres_block": Preset(
        DepthConfig(sources="block", merge="replace", final="routed", block=4),
        "the same over sums of blocks of layers",
        "2603.15031",
    ),
    "delta": Preset(
        DepthConfig(sources="sublayer", merge="add"),
        "the stream plus a softmax over all earlier deltas",
        "2605.18855",
    ),
    "delta_block": Preset(
        DepthConfig(sources="block", merge="add", block=4),
        "the same over sums of blocks: the practical default",
        "2605.18855",
    ),
    "cumulative": Preset(
        DepthConfig(sources="cumulative", merge="replace"),
        "a softmax over earlier states of the stream: the redundant choice",
        "2605.18855",
    ),
    "ddl": Preset(
        DdlConfig(),
        "the stream, which sublayers erase and rewrite along their output",
        "2601.00417",
    ),
    "hyper": Preset(
        HyperConfig(),
        "a learned mix of 4 streams, which also mix with one another",
        "2409.19606",
    ),
    "mhc": Preset(
        MhcConfig(),
        "the same with a doubly stochastic mixing matrix",
        "2512.24880",
    ),
    "dense": Preset(
        DenseConfig(),
        "a learned average of all earlier layers' outputs, once a layer",
        "2402.02622",
    ),
}


def preset(name: str, **changes: Any) -> SchemeConfig:
    """The config of a paper's scheme, with any of its fields changed.

    >>> preset("delta_block", block=2).block
    2
    """
    if name not in PRESETS:
        raise ValueError(unknown_name("preset", name, PRESETS))
    return PRESETS[name].config.replace(**changes)
