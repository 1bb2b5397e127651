"""What a residual scheme is made of: frozen, keyword-only, validated at birth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dares.names import unknown_name

SOURCES = ("sublayer", "block", "cumulative", "normed", "projected")
MERGES = ("replace", "add", "gate", "none")
FINALS = ("stream", "routed")
READ_SCALES = ("stream", "none")


@dataclass(frozen=True, kw_only=True)
class SchemeConfig:
    """Base of every scheme's config. A subclass names its scheme and declares its fields."""

    scheme: ClassVar[str]

    def check_layers(self, layers: int) -> None:
        """Raise ValueError where this config cannot serve a model of that many layers."""

    def replace(self, **changes: Any) -> SchemeConfig:
        """A copy with some fields changed; an unknown field is answered with the nearest one."""
        _refuse_unknown_fields(type(self), changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Every field and the scheme's name, as plain JSON values."""
        return {"scheme": self.scheme, **dataclasses.asdict(self)}


@dataclass(frozen=True, kw_only=True)
class StandardConfig(SchemeConfig):
    """The ordinary residual connection: no choices to make."""

    scheme: ClassVar[str] = "standard"


@dataclass(frozen=True, kw_only=True)
class DepthConfig(SchemeConfig):
    """Routed residuals: what is remembered, how the mix joins, what the final norm reads.

    sources      sublayer: every sublayer's delta; block: sums of `block` layers' deltas;
                 cumulative: the stream after every sublayer; normed and projected: controls,
                 cumulative states layer-normed or under one fixed random orthogonal matrix
    merge        replace: the mix alone; add: stream + mix; gate: stream + alpha * mix with
                 alpha zero at the start; none: sites read the stream (only the final norm routes)
    final        what the final norm reads: the stream, or one more routed mix
    block        layers a block (sources="block" only)
    read_scale   stream: reads carry the constant that makes uniform weights give the stream;
                 none: the papers' literal formulas
    null_source  one more source that is zero and scores zero: a site may read nothing
    running      the unfinished block is a source too (sources="block" only)
    query_std    standard deviation of the queries at the start; zero is the papers' rule and
                 the only value under which conversion changes nothing
    eps          inside the root mean square of the keys
    """

    scheme: ClassVar[str] = "routed"

    sources: str
    merge: str
    final: str = "stream"
    block: int | None = None
    read_scale: str = "stream"
    null_source: bool = False
    running: bool = True
    query_std: float = 0.0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        for field, choices in (
            ("sources", SOURCES),
            ("merge", MERGES),
            ("final", FINALS),
            ("read_scale", READ_SCALES),
        ):
            if getattr(self, field) not in choices:
                raise ValueError(unknown_name(field, getattr(self, field), choices))
        _check_flag("null_source", self.null_source)
        _check_flag("running", self.running)
        self._check_block()
        if not _is_number(self.query_std) or not 0 <= self.query_std < float("inf"):
            raise ValueError(f"query_std must be zero or more, got {self.query_std!r}")
        _check_eps(self.eps)
        if self.merge == "none" and self.final == "stream":
            raise ValueError(
                "merge='none' with final='stream' would never read a source: "
                "use preset('standard'), or final='routed'"
            )

    def _check_block(self) -> None:
        if self.sources == "block":
            if isinstance(self.block, bool) or not isinstance(self.block, int) or self.block < 1:
                raise ValueError(
                    f"block must be a whole number of layers, at least 1, got {self.block!r}"
                )
            return
        if self.block is not None:
            raise ValueError(
                f"block={self.block!r} needs sources='block', got sources={self.sources!r}: "
                "leave block out"
            )
        if not self.running:
            raise ValueError(
                f"running=False needs sources='block', got sources={self.sources!r}: "
                "leave running out"
            )

    def check_layers(self, layers: int) -> None:
        if self.block is not None and self.block > layers:
            raise ValueError(
                f"block must be between 1 and {layers} (the model's layers), got {self.block}"
            )


@dataclass(frozen=True, kw_only=True)
class DdlConfig(SchemeConfig):
    """Deep Delta Learning.

    columns     d_v: how many columns the state has
    gate_start  beta at the start, between 0 (keep) and 2 (reflect), both left out
    erase       False: only write, a control
    eps         inside the root mean square of the input, and of the output's length
    """

    scheme: ClassVar[str] = "ddl"

    columns: int = 1
    gate_start: float = 0.2
    erase: bool = True
    eps: float = 1e-6

    def __post_init__(self) -> None:
        _check_whole("columns", self.columns, 1)
        _check_flag("erase", self.erase)
        _check_eps(self.eps)
        if not _is_number(self.gate_start) or not 0 < self.gate_start < 2:
            raise ValueError(f"gate_start must be between 0 and 2, got {self.gate_start!r}")


@dataclass(frozen=True, kw_only=True)
class HyperConfig(SchemeConfig):
    """Hyper-Connections: `streams` of them, and whether weights also follow the input."""

    scheme: ClassVar[str] = "hyper"

    streams: int = 4
    dynamic: bool = True
    eps: float = 1e-6

    def __post_init__(self) -> None:
        _check_whole("streams", self.streams, 1)
        _check_flag("dynamic", self.dynamic)
        _check_eps(self.eps)


@dataclass(frozen=True, kw_only=True)
class MhcConfig(SchemeConfig):
    """Manifold-constrained Hyper-Connections: `sinkhorn_steps` make the mixing matrix."""

    scheme: ClassVar[str] = "mhc"

    streams: int = 4
    sinkhorn_steps: int = 20
    eps: float = 1e-6

    def __post_init__(self) -> None:
        _check_whole("streams", self.streams, 2)  # one stream has nothing to mix
        _check_whole("sinkhorn_steps", self.sinkhorn_steps, 1)
        _check_eps(self.eps)


@dataclass(frozen=True, kw_only=True)
class DenseConfig(SchemeConfig):
    """DenseFormer: averages after every `period`-th layer, over every `dilation`-th before it."""

    scheme: ClassVar[str] = "dense"

    dilation: int = 1
    period: int = 1

    def __post_init__(self) -> None:
        _check_whole("dilation", self.dilation, 1)
        _check_whole("period", self.period, 1)

    def check_layers(self, layers: int) -> None:
        if self.period > layers:
            raise ValueError(
                f"period must be between 1 and {layers} (the model's layers), got {self.period}"
            )


@dataclass(frozen=True, kw_only=True)
class SkipConfig(SchemeConfig):
    """A control: every read is the stream plus the embedding. No choices, nothing learned."""

    scheme: ClassVar[str] = "skip"


CONFIGS: dict[str, type[SchemeConfig]] = {
    config.scheme: config
    for config in (
        StandardConfig,
        DepthConfig,
        DdlConfig,
        HyperConfig,
        MhcConfig,
        DenseConfig,
        SkipConfig,
    )
}


def config_from_dict(data: Mapping[str, Any]) -> SchemeConfig:
    """Read what `to_dict` wrote; unknown and missing fields are errors, never guesses."""
    if not isinstance(data, Mapping):
        raise ValueError(f"a depth config must be a table of fields, got {data!r}")
    fields = dict(data)
    if "scheme" not in fields:
        raise ValueError(
            f"the depth config has no field 'scheme'; add it, one of: {', '.join(CONFIGS)}"
        )
    name = fields.pop("scheme")
    if name not in CONFIGS:
        raise ValueError(unknown_name("scheme", name, CONFIGS))
    config = CONFIGS[name]
    _refuse_unknown_fields(config, fields)
    missing = [field.name for field in dataclasses.fields(config) if field.name not in fields]
    if missing:
        raise ValueError(
            f"the depth config lacks {', '.join(map(repr, missing))}; it must hold every field of "
            f"{config.__name__}, as save_pretrained writes them"
        )
    return config(**fields)


def _refuse_unknown_fields(config: type[SchemeConfig], fields: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(config)]
    for name in fields:
        if name not in known:
            if not known:
                raise ValueError(f"scheme {config.scheme!r} has no options, got {name!r}")
            raise ValueError(unknown_name(f"{config.__name__} field", name, known))


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")


def _check_eps(eps: Any) -> None:
    if not _is_number(eps) or not 0 < eps < float("inf"):
        raise ValueError(f"eps must be above zero, got {eps!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
