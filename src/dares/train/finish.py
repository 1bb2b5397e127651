"""What a run leaves: the model in Hugging Face format, its card, its curves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from dares.data.rows import PackedData
from dares.train.curves import draw
from dares.train.durable import PART, sync_folder, writing
from dares.train.engine import Engine
from dares.train.metrics import FILE, read_metrics
from dares.train.recipe import Recipe, build_model

CURVES, MODEL = "curves.png", "model"

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [dares, {scheme}]
---
# {name}

{about}.

A {family} decoder ({layers} layers, width {width}, {parameters:,} parameters) with residual scheme
`{scheme}`, trained from scratch by [dares](https://arxiv.org/abs/2605.18855) for {steps:,} steps of
{tokens:,} tokens. Validation loss {loss}.

```python
import dares  # registers the routed families
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```

![curves]({curves})

## Recipe

```json
{recipe}
```
"""


def write_model(engine: Engine, data: PackedData, folder: Path) -> None:
    """RUN/model and RUN/curves.png, each there whole or not at all. All ranks call this."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(engine.network, options=options)
    with engine.ranks.first_goes_first():
        if engine.ranks.first:
            metrics = read_metrics(folder / FILE)
            with writing(str(folder / MODEL)):
                _save_curves(engine.recipe, folder, metrics)
                _save(engine.recipe, data, weights, folder, metrics)


def _save_curves(recipe: Recipe, folder: Path, metrics: list[dict[str, Any]]) -> None:
    part = folder / (CURVES + PART)
    draw({recipe.name: metrics}, recipe.name).savefig(part, dpi=130, format="png")
    os.replace(part, folder / CURVES)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own bars, a file each."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


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
    model.config.eos_token_id = model.generation_config.eos_token_id = data.eos_id
    part, target = folder / (MODEL + PART), folder / MODEL
    shutil.rmtree(part, ignore_errors=True)
    with _quiet():
        model.save_pretrained(part)
    shutil.copytree(data.tokenizer, part, dirs_exist_ok=True)
    shutil.copyfile(folder / CURVES, part / CURVES)
    losses = [line["validation_loss"] for line in metrics if "validation_loss" in line]
    card = CARD.format(
        name=recipe.name,
        about=recipe.about[:1].upper() + recipe.about[1:],
        family=recipe.model.family,
        layers=recipe.model.layers,
        width=recipe.model.width,
        parameters=model.num_parameters(),
        scheme=recipe.depth.to_dict()["scheme"],
        steps=recipe.run.steps,
        tokens=recipe.tokens_per_step,
        loss=f"{losses[-1]:.4f}" if losses else "not measured",
        curves=CURVES,
        recipe=json.dumps(recipe.to_dict(), indent=1),
    )
    (part / "README.md").write_text(card)
    shutil.rmtree(target, ignore_errors=True)  # of a run that had ended: now there is another
    os.rename(part, target)
    sync_folder(folder)
