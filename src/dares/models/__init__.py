"""Hugging Face families with routed residuals. Needs transformers."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from transformers import AutoModelForCausalLM, PreTrainedConfig

from dares.config import SchemeConfig
from dares.families import FAMILY_MODULES
from dares.models.configs import to_base_config, to_routed_config
from dares.ops.depth_mix import check_backend

if TYPE_CHECKING:
    from dares.models.family import Family

HOW_TO_ADD = "docs/new-family.md shows how to add one"


def family_module(model_type: str) -> ModuleType:
    """The module that routes an architecture, by transformers' name of it."""
    if model_type not in FAMILY_MODULES:
        raise ValueError(
            f"no routed family for model_type {model_type!r}; "
            f"there are: {', '.join(sorted(FAMILY_MODULES))}; {HOW_TO_ADD}"
        )
    return importlib.import_module(f"dares.models.{FAMILY_MODULES[model_type]}")


def family_of(config: Any) -> Family:
    """The family of a transformers config, routed or not."""
    return family_module(getattr(config, "base_model_type", config.model_type)).FAMILY


def check_scheme_config(depth: Any) -> SchemeConfig:
    """The config, if it is one."""
    if not isinstance(depth, SchemeConfig):
        raise ValueError(
            f"depth must be a scheme config such as dares.preset('delta'), got {depth!r}"
        )
    return depth


def from_config(config: Any, depth: SchemeConfig, *, backend: str = "auto") -> Any:
    """A new language model of a known family with routed residuals and random weights.

    The weights are those that the family's own class would draw from the same random state. A
    routed model's config will do too; its scheme is replaced.

    backend  how depth is mixed: "auto", or a name that is taken at its word
    """
    if not isinstance(config, PreTrainedConfig):
        raise ValueError(f"config must be a transformers config, got {type(config).__name__}")
    check_scheme_config(depth)
    check_backend(backend)
    family_of(config)
    if hasattr(config, "base_model_type"):
        config = to_base_config(config)
    model = AutoModelForCausalLM.from_config(to_routed_config(config, depth))
    model.base_model.depth.backend = backend
    return model
