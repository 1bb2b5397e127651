"""The model that a fine-tuning run begins with: loaded, routed, and opened to learning in part."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from dares.adapters.freezing import freeze_base
from dares.config import SchemeConfig, config_from_dict
from dares.conversion import convert
from dares.data.rows import PackedData
from dares.data.tokenizer import load_tokenizer
from dares.models import family_of, from_config
from dares.names import unknown_name
from dares.pretrained.find import find_folder, read_config
from dares.pretrained.loading import load_model
from dares.train.recipe import ModelShape, Recipe
from dares.train.start import StartSettings


def checkpoint_config(name: str) -> Any:
    """The transformers config of a checkpoint, plain or routed, that could be trained."""
    folder = find_folder(name)
    if read_config(folder).get("quantization_config") is not None:
        raise ValueError(f"{name} is quantized: fine-tune the model that it was quantized from")
    config: Any = AutoConfig.from_pretrained(folder)
    family_of(config)  # or a sentence that lists them
    config.dtype = torch.float32  # bf16 weights would hardly move at a fine-tuning rate
    return config


def scheme_of_checkpoint(config: Any) -> SchemeConfig | None:
    """The scheme of a routed checkpoint; None of a plain one."""
    return config_from_dict(config.depth) if is_routed(config) else None


def is_routed(config: Any) -> bool:
    """Is this the config of a routed checkpoint?"""
    return hasattr(config, "base_model_type")


def shape_of(config: Any) -> ModelShape:
    """A checkpoint's shape, in the words of a recipe."""
    width, heads = config.hidden_size, config.num_attention_heads
    return ModelShape(
        family=getattr(config, "base_model_type", config.model_type),
        width=width,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or width // heads,
        mlp=getattr(config, "intermediate_size", None) or 4 * width,
        vocabulary=config.vocab_size,
        tied=config.tie_word_embeddings,
    )


def build_start(recipe: Recipe, start: StartSettings) -> Any:
    """The routed model with the checkpoint's weights; on the meta device its structure alone.

    What does not learn requires no gradient, and LoRA is in place.
    """
    if torch.get_default_device().type == "meta":
        model = from_config(
            checkpoint_config(start.checkpoint), recipe.depth, backend=recipe.run.backend
        )
    else:
        model = load_model(find_folder(start.checkpoint), dtype=torch.float32)
        if is_routed(model.config):
            model.base_model.depth.backend = recipe.run.backend
        else:
            model = convert(model, recipe.depth, backend=recipe.run.backend)
    if start.lora_rank is not None:
        _add_lora(model, start)
    elif start.freeze == "base":
        freeze_base(model)
    if start.freeze == "routers":
        model.base_model.depth.requires_grad_(False)
    return model


def _add_lora(model: Any, start: StartSettings) -> None:
    """PEFT's matrices in the linear layers; they and the routers learn."""
    from peft import LoraConfig
    from transformers.pytorch_utils import Conv1D

    linear = {
        path.rpartition(".")[2]: module
        for path, module in model.base_model.depth_layers.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }
    for name in start.lora_targets:
        if name not in linear:
            raise ValueError(unknown_name("LoRA target", name, sorted(linear)))
    rank = start.lora_rank
    assert rank is not None
    targets = sorted(start.lora_targets or linear)
    settings = LoraConfig(
        r=rank,
        lora_alpha=2 * rank if start.lora_alpha is None else start.lora_alpha,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(linear[name], Conv1D) for name in targets),
        task_type="CAUSAL_LM",
    )
    model.add_adapter(settings)
    model.base_model.depth.requires_grad_(True)  # PEFT freezes all but its own


def check_start(recipe: Recipe, start: StartSettings) -> None:
    """An error if the recipe asks of its checkpoint what that cannot give."""
    if start.lora_rank is not None and find_spec("peft") is None:
        raise ValueError("LoRA needs PEFT, which is not installed: pip install 'dares[train]'")
    config = checkpoint_config(start.checkpoint)
    own = scheme_of_checkpoint(config)
    if own is not None and own != recipe.depth:
        raise ValueError(
            f"{start.checkpoint} is routed already, by {own}: leave the scheme as it is, or start "
            "from the model that it was converted from"
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and recipe.data.row_tokens > positions:
        raise ValueError(
            f"data.row_tokens={recipe.data.row_tokens} is more than the {positions} positions of "
            f"{start.checkpoint}: use that many or fewer"
        )
    if start.freeze != "none" and not _owns_parameters(config, recipe.depth):
        raise ValueError(
            f"{start.checkpoint} has no routers for freeze={start.freeze} to speak of: choose a "
            "--scheme, or leave --freeze out"
        )
    _check_tokenizer(recipe.data.tokenizer, start.checkpoint)


def _owns_parameters(config: Any, depth: SchemeConfig) -> bool:
    with torch.device("meta"):
        scheme = from_config(config, depth).base_model.depth
    return any(True for _ in scheme.parameters())


def _check_tokenizer(named: str | None, checkpoint: str) -> None:
    own = str(find_folder(checkpoint))
    if named is None:
        raise ValueError(f"data.tokenizer must be the model's own, {own}, got none")
    if named != own and load_tokenizer(named).fingerprint != load_tokenizer(own).fingerprint:
        raise ValueError(
            f"data.tokenizer={named} is not the tokenizer of {checkpoint}: leave it out"
        )


def check_rows(recipe: Recipe, data: PackedData) -> None:
    """An error if the rows hold ids that the model has not, or came of text that is not UTF-8."""
    if data.vocabulary > recipe.model.vocabulary:
        raise ValueError(
            f"the tokenizer {recipe.data.tokenizer!r} has {data.vocabulary} ids and the model "
            f"{recipe.model.vocabulary}: it is not this model's tokenizer"
        )
    replaced = data.summary()["replaced_bytes"]
    if replaced:
        raise ValueError(
            f"{replaced} bytes of the data are not UTF-8: is it in another encoding? save it as "
            "UTF-8, with iconv for example"
        )
