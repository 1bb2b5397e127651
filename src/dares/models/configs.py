"""The families there are, and their routed config classes: cheap to import, no model code."""

from __future__ import annotations

import functools
from typing import Any

from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from dares.config import SchemeConfig, config_from_dict

# transformers' model_type -> the module of dares.models that routes it
FAMILY_MODULES = {
    "gemma3_text": "gemma3",
    "gpt2": "gpt2",
    "gpt_neox": "gpt_neox",
    "llama": "llama",
    "mistral": "mistral",
    "olmo2": "olmo2",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}

PREFIX = "dares_"


@functools.cache
def routed_config_class(base_type: str) -> Any:
    """The family's config with one more field, `depth`: a scheme config as a plain table."""
    base: type[Any] = CONFIG_MAPPING[base_type]

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
    for base_type in FAMILY_MODULES:
        if name == f"Dares{CONFIG_MAPPING[base_type].__name__}":
            return routed_config_class(base_type)
    raise AttributeError(name)


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
    base = CONFIG_MAPPING[config.base_model_type](**fields)
    base._attn_implementation = config._attn_implementation
    return base


for _base_type in FAMILY_MODULES:
    AutoConfig.register(PREFIX + _base_type, routed_config_class(_base_type))
