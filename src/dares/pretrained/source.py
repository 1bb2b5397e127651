"""A checkpoint that can be converted: its config, its weights, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dares.config import SchemeConfig
from dares.models import family_module
from dares.models.configs import PREFIX
from dares.pretrained.shards import Shard
from dares.schemes import ResidualScheme


@dataclass(frozen=True)
class Source:
    """An ordinary Hugging Face folder of a known family."""

    name: str  # as a card calls it
    path: Path
    config: Any  # the family's own transformers config

    @property
    def depth(self) -> SchemeConfig | None:
        """The scheme that the checkpoint was trained with; None where it has the usual residual."""
        return None

    def folder(self, work: Path, dtype: torch.dtype | None) -> Path:
        """A Hugging Face folder with its files; work is for those that must be made."""
        return self.path

    def belongs_to_base(self, name: str) -> bool:
        """Is this one of the tensors that the routed model has under the same name?"""
        return True

    def routers(self, shards: Sequence[Shard], scheme: ResidualScheme) -> dict[str, Tensor]:
        """The scheme's tensors by their names in it: as they start, or as they were trained."""
        return scheme.state_dict()


def family_config(where: Path, fields: dict[str, Any]) -> Any:
    """The transformers config of a config.json, if its family can be routed."""
    from transformers import AutoConfig

    model_type = fields["model_type"]
    if model_type.startswith(PREFIX):
        raise ValueError(
            f"{where} is routed already ({model_type}): convert the model that it was made from"
        )
    family_module(model_type)  # an unknown one is answered with those there are
    if fields.get("quantization_config") is not None:
        raise ValueError(
            f"{where} is quantized, so that its routers could not be trained with it: "
            "convert the checkpoint that it was quantized from"
        )
    try:
        return AutoConfig.from_pretrained(where)
    except (OSError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the config of {where} cannot be read ({reason})") from error
