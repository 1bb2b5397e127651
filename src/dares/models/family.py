"""A family: transformers' own classes, and the routed ones made from them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from transformers import AutoModel, AutoModelForCausalLM
from transformers.conversion_mapping import (
    get_checkpoint_conversion_mapping,
    register_checkpoint_conversion_mapping,
)

from dares.models.configs import routed_config_class
from dares.models.layer import RoutedLayer
from dares.models.routed_model import RoutedCausalLM, RoutedModel, forward_like
from dares.models.spec import BlockSpec


@dataclass(frozen=True)
class Family:
    """The classes of one architecture, transformers' (base_*) and ours."""

    base_causal_lm: type
    layer: type
    model: type
    causal_lm: type

    @property
    def classes(self) -> tuple[type, type, type]:
        """The routed layer, model and language model, for a family's module to name."""
        return self.layer, self.model, self.causal_lm


def make_family(
    name: str,
    *,
    module: str,
    model_type: str,
    layer: type,
    model: type,
    causal_lm: type,
    spec: BlockSpec | None = None,
) -> Family:
    """Route an architecture: name it, name its transformers classes, say where its parts are.

    name        used in class names: "Qwen3" gives DaresQwen3ForCausalLM
    module      the calling module's __name__, so that the classes can be pickled from there
    model_type  transformers' name of the architecture
    """
    spec = spec or BlockSpec()
    config = routed_config_class(model_type)

    def derive(suffix: str, bases: tuple[type, ...], **attributes: Any) -> Any:
        class_name = f"Dares{name}{suffix}"
        namespace = {"__module__": module, "__qualname__": class_name, **attributes}
        return type(class_name, bases, namespace)

    _, _, *rest = inspect.signature(layer.forward).parameters  # type: ignore[attr-defined]
    routed_layer = derive(
        "DecoderLayer", (RoutedLayer, layer), spec=spec, argument_names=tuple(rest)
    )
    shared: dict[str, Any] = {
        "config_class": config,
        "_no_split_modules": [routed_layer.__name__],
        "_keep_in_fp32_modules_strict": {"depth"},  # a gain of 1.0 in bf16 would never move
    }
    routed_model = derive(
        "Model",
        (RoutedModel, model),
        family_spec=spec,
        family_model=model,
        layer_class=routed_layer,
        **shared,
        forward=forward_like(model.forward, RoutedModel.forward),  # type: ignore[attr-defined]
    )
    routed_causal_lm = derive(
        "ForCausalLM",
        (RoutedCausalLM, causal_lm),
        family_model=causal_lm,
        inner_class=routed_model,
        **shared,
        forward=forward_like(causal_lm.forward, RoutedCausalLM.forward),  # type: ignore[attr-defined]
    )
    _keep_checkpoint_names(
        {
            model_type: config.model_type,
            model.__name__: routed_model.__name__,
            causal_lm.__name__: routed_causal_lm.__name__,
        }
    )
    AutoModel.register(config, routed_model)
    AutoModelForCausalLM.register(config, routed_causal_lm)
    return Family(causal_lm, routed_layer, routed_model, routed_causal_lm)


def _keep_checkpoint_names(routed_names: dict[str, str]) -> None:
    """Read and write weights under the names that the family uses on disk."""
    for base, routed in routed_names.items():
        mapping = get_checkpoint_conversion_mapping(base)
        if mapping is not None:
            register_checkpoint_conversion_mapping(routed, mapping, overwrite=True)
