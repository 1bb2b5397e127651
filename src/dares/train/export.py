"""What a fine-tuning run leaves beside its checkpoints: adapters, and the model without them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from dares.adapters import save_routers
from dares.conversion import unconvert
from dares.durable import replacing
from dares.pretrained.find import find_folder
from dares.quiet import quiet
from dares.train.pretrained import checkpoint_config, is_routed
from dares.train.start import StartSettings

ROUTERS, LORA = "routers", "lora"


def save_adapters(model: Any, start: StartSettings, folder: Path) -> None:
    """RUN/routers and RUN/lora, where the base that they go with was left as it was."""
    if start.lora_rank is not None:
        # no name of a base: to load this onto one without the routers would be another model
        model.peft_config["default"].base_model_name_or_path = None
        with replacing(folder / LORA) as part, quiet():
            model.save_pretrained(part)  # of a model that holds an adapter, PEFT's format
    if start.keeps_base and model.base_model.depth.state_dict():
        with replacing(folder / ROUTERS) as part:
            save_routers(model, part)


def whole_model(model: Any, start: StartSettings) -> Any:
    """The trained model in one piece, LoRA merged; without routers a plain one stays plain."""
    if start.lora_rank is not None:
        _merge_lora(model)
    if (
        not is_routed(checkpoint_config(start.checkpoint))
        and not model.base_model.depth.state_dict()
    ):
        model = unconvert(model)
    with suppress(OSError):  # there may be none: then it follows from the config
        model.generation_config = GenerationConfig.from_pretrained(find_folder(start.checkpoint))
    return model


def _merge_lora(model: Any) -> None:
    """The same function without PEFT: its matrices added to the weights that they belong to."""
    from peft.tuners.lora import LoraLayer

    for path, layer in list(model.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, layer.get_base_layer())
    model._hf_peft_config_loaded = False  # or transformers would save an adapter again
