"""The routed config classes: made when asked for, without importing any model code.

transformers is imported inside the functions: `auto.py` may need this module in the middle of
transformers' own import.
"""

from __future__ import annotations

import functools
from typing import Any

from dares.config import SchemeConfig, config_from_dict
from dares.families import FAMILY_MODULES

PREFIX = "dares_"


def _base_config_class(base_type: str) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[base_type]


@functools.cache
def routed_config_class(base_type: str) -> Any:
    """The family's config with one more field, `depth`: a scheme config as a plain table."""
    base: Any = _base_config_class(base_type)

    class RoutedConfig(base):
        model_type = PREFIX + base_type
        base_model_type = base_type

        depth: dict | None = None

        def __post_init__(self, **kwargs: Any) -> None:
            super().__post_init__(**kwargs)
            if self.depth is not None:
                config_from_dict(self.depth).check_layers(self.num_hidden_layers)
            from dares.models import family_module  # makes the model known to the Auto classes

            family_module(base_type)

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "depth" and isinstance(value, SchemeConfig):
                value = value.to_dict()
            super().__setattr__(name, value)

    RoutedConfig.__name__ = RoutedConfig.__qualname__ = f"Dares{base.__name__}"
    return RoutedConfig


def __getattr__(name: str) -> Any:
    # the classes above by name, so that they can be pickled
    for base_type in FAMILY_MODULES if name.startswith("Dares") else ():
        if name == f"Dares{_base_config_class(base_type).__name__}":
            return routed_config_class(base_type)
    raise AttributeError(name)


def register(base_type: str) -> None:
    """Make a family's routed config known to AutoConfig."""
    from transformers import AutoConfig

    AutoConfig.register(PREFIX + base_type, routed_config_class(base_type), exist_ok=True)


def to_routed_config(config: Any, depth: SchemeConfig) -> Any:
    """A family's config with a scheme."""
    fields = config.to_dict()
    for name in ("model_type", "architectures"):
        fields.pop(name, None)
    routed = routed_config_class(config.model_type)(**fields, depth=depth.to_dict())
    routed._attn_implementation = config._attn_implementation
    return routed


def to_base_config(config: Any) -> Any:
    """The family's own config of a routed one."""
    fields = config.to_dict()
    for name in ("model_type", "architectures", "depth"):
        fields.pop(name, None)
    base = _base_config_class(config.base_model_type)(**fields)
    base._attn_implementation = config._attn_implementation
    return base
