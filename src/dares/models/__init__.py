"""Hugging Face families with routed residuals. Needs transformers."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dares.config import SchemeConfig
from dares.models.configs import FAMILY_MODULES, to_routed_config

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


def from_config(config: Any, depth: SchemeConfig) -> Any:
    """A new language model of a known family with routed residuals and random weights.

    The weights are those that the family's own class would draw from the same random state.
    """
    family = family_of(config)
    return family.causal_lm(to_routed_config(config, depth))
