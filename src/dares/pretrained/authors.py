"""Checkpoints of the Delta Attention Residuals authors' own release (model_type qwen3_attnres).

Their names, and what becomes of them (2L sites; a site with one source has no router):

    model.layers.N.attn_res_proj.weight [1, D]   the query of site 2N
    model.layers.N.attn_res_norm.weight [D]      its gain
    model.layers.N.mlp_res_proj, mlp_res_norm    those of site 2N + 1
    model.final_res_proj, final_res_norm         those of the final norm (modes block and full)

Their reads are the papers' literal formulas, which is read_scale="none" here. What does not match
this table exactly is refused: the same names once stood for other formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dares.config import SchemeConfig
from dares.models import family_module
from dares.names import unknown_name
from dares.presets import preset
from dares.pretrained.shards import Shard
from dares.pretrained.source import Source
from dares.schemes import ResidualScheme

MODEL_TYPE = "qwen3_attnres"
BASE_TYPE = "qwen3"
PRESETS = {"delta": "delta", "full": "attnres", "block": "attnres_block"}  # their mode -> ours
MARK = "attnres_"
FIELDS = ("attnres_mode", "attnres_num_blocks", "attnres_gate_type", "attnres_use_null_source")
NOT_DELTA_BLOCK = (
    "their code appends the stream minus the last source where a block ends, not minus the stream "
    "at the block's start, and leaves the running block out: its sources are not block deltas, "
    "which delta_block here reads, so no setting gives the same logits"
)


def is_authors(fields: dict[str, Any]) -> bool:
    """Was this config.json written by their release?"""
    return fields["model_type"] == MODEL_TYPE


@dataclass(frozen=True)
class AuthorsSource(Source):
    """A folder of theirs: the base is an ordinary Qwen3, the routers are trained."""

    trained_depth: SchemeConfig

    @classmethod
    def open(cls, name: str, folder: Path, fields: dict[str, Any]) -> AuthorsSource:
        """The folder, if its mode is one that ours computes too."""
        from transformers import AutoConfig

        base = {key: value for key, value in fields.items() if not key.startswith(MARK)}
        for key in ("model_type", "architectures", "auto_map"):
            base.pop(key, None)
        config = AutoConfig.for_model(BASE_TYPE, **base)
        return cls(name, folder, config, _depth(folder, fields, config))

    @property
    def depth(self) -> SchemeConfig:
        return self.trained_depth

    def belongs_to_base(self, name: str) -> bool:
        return name not in self._router_names()

    def routers(self, shards: Sequence[Shard], scheme: ResidualScheme) -> dict[str, Tensor]:
        """Their queries and gains, stacked in the order of our routers."""
        places = {name: shard for shard in shards for name in shard.names}
        self._check_names(set(places))
        width = self.config.hidden_size

        def stacked(part: str) -> Tensor:
            rows = []
            for site in scheme.router_of_site:  # type: ignore[union-attr]
                name = f"{self._stem(site)}_{part}.weight"
                tensor = places[name].read(name)
                if tensor.numel() != width:
                    raise ValueError(
                        f"{name!r} has shape {tuple(tensor.shape)}, the model's width is {width}: "
                        "the checkpoint does not fit its config"
                    )
                rows.append(tensor.reshape(width).float())
            return torch.stack(rows)

        return {"query": stacked("proj"), "gain": stacked("norm")}

    def _stem(self, site: int) -> str:
        layer, second = divmod(site, 2)
        if layer == self.config.num_hidden_layers:
            return "model.final_res"
        return f"model.layers.{layer}.{'mlp' if second else 'attn'}_res"

    def _router_names(self) -> set[str]:
        routes_final = self.trained_depth.to_dict()["final"] == "routed"
        sites = range(2 * self.config.num_hidden_layers + routes_final)
        return {f"{self._stem(site)}_{part}.weight" for site in sites for part in ("proj", "norm")}

    def _check_names(self, names: set[str]) -> None:
        with torch.device("meta"):
            base = set(family_module(BASE_TYPE).FAMILY.base_causal_lm(self.config).state_dict())
        expected = self._router_names()
        missing, odd = sorted(expected - names), sorted(names - expected - base)
        if missing or odd:
            what = f"lacks {missing[0]!r}" if missing else f"holds {odd[0]!r}"
            raise ValueError(
                f"{self.path} {what}, unlike what the authors' release saves: it was made by "
                "other code, whose formulas may differ"
            )


def _depth(folder: Path, fields: dict[str, Any], config: Any) -> SchemeConfig:
    """The scheme of ours that computes what their mode does, or the reason why none does."""
    for name in fields:
        if name.startswith(MARK) and name not in FIELDS:
            raise ValueError(
                f"{folder} sets {name!r}, which belongs to another release of the authors' code "
                f"(known: {', '.join(FIELDS)}): its formulas differ"
            )
    mode = fields.get("attnres_mode", "block")
    if mode == "delta_block":
        raise ValueError(f"{folder} has attnres_mode 'delta_block': {NOT_DELTA_BLOCK}")
    if mode not in PRESETS:
        raise ValueError(f"{folder}: {unknown_name('attnres_mode', mode, PRESETS)}")
    for name, plain in (("attnres_gate_type", "bias"), ("attnres_use_null_source", False)):
        if fields.get(name, plain) != plain:
            raise ValueError(
                f"{folder} sets {name} to {fields[name]!r}, which no scheme here computes: "
                f"only {plain!r} converts"
            )
    changes: dict[str, Any] = {"read_scale": "none", "eps": config.rms_norm_eps}
    if mode == "block":
        blocks = fields.get("attnres_num_blocks", 8)
        changes["block"] = max(1, -(-config.num_hidden_layers // blocks))
    return preset(PRESETS[mode], **changes)
