"""What a run leaves: the model in Hugging Face format, its card, its curves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from dares.data.rows import PackedData
from dares.durable import PART, replacing, writing
from dares.quiet import quiet
from dares.train.card import write_card
from dares.train.curves import draw
from dares.train.engine import Engine
from dares.train.export import save_adapters, whole_model
from dares.train.metrics import FILE, read_metrics, validation_losses
from dares.train.recipe import Recipe, build_model

CURVES, MODEL = "curves.png", "model"


def write_model(engine: Engine, data: PackedData, folder: Path) -> None:
    """RUN/model and RUN/curves.png, each there whole or not at all. All ranks call this."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(engine.network, options=options)
    with engine.ranks.first_goes_first():
        if engine.ranks.first:
            metrics = read_metrics(folder / FILE)
            with writing(str(folder / MODEL), training=True):
                _save_curves(engine.recipe, folder, metrics)
                _save(engine.recipe, data, weights, folder, metrics)


def _save_curves(recipe: Recipe, folder: Path, metrics: list[dict[str, Any]]) -> None:
    part = folder / (CURVES + PART)
    draw({recipe.name: metrics}, recipe.name).savefig(part, dpi=130, format="png")
    os.replace(part, folder / CURVES)


def _save(
    recipe: Recipe,
    data: PackedData,
    weights: dict[str, Any],
    folder: Path,
    metrics: list[dict[str, Any]],
) -> None:
    with torch.device("meta"):
        model = build_model(recipe)  # not the trained one, whose class FSDP has changed
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    if recipe.start is None:
        model.config.eos_token_id = model.generation_config.eos_token_id = data.eos_id
    else:
        save_adapters(model, recipe.start, folder)
        model = whole_model(model, recipe.start)
    with replacing(folder / MODEL) as part:
        with quiet():
            model.save_pretrained(part)
        shutil.copytree(data.tokenizer, part, dirs_exist_ok=True)
        shutil.copyfile(folder / CURVES, part / CURVES)
        card = write_card(recipe, model.num_parameters(), validation_losses(metrics), CURVES)
        (part / "README.md").write_text(card)
