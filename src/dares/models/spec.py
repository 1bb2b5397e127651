"""Where a family keeps its attention, its MLP and their norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Branch:
    """One sublayer of a decoder layer, as attribute names of that layer.

    norm   the norm that its input goes through; None where it reads the raw stream
    after  modules that its output goes through before it joins the stream (post-norm, dropout)
    """

    module: str
    norm: str | None
    after: tuple[str, ...] = ()


def _no_obstacle(config: Any) -> str | None:
    return None


@dataclass(frozen=True)
class BlockSpec:
    """What differs between families; the defaults are Llama's.

    layers    the inner model's attribute that holds the decoder layers
    parallel  the config's attribute that says that both branches read the same stream, if any
    obstacle  says why a config of this family cannot be routed; None where it can
    """

    layers: str = "layers"
    attention: Branch = Branch("self_attn", norm="input_layernorm")
    mlp: Branch = Branch("mlp", norm="post_attention_layernorm")
    parallel: str | None = None
    obstacle: Callable[[Any], str | None] = _no_obstacle

    def is_parallel(self, config: Any) -> bool:
        """Do both branches of this config's layers read the same stream?"""
        return self.parallel is not None and bool(getattr(config, self.parallel))
