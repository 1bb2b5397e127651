"""The card beside a trained model: what it is, how it was made, how to load it."""

from __future__ import annotations

import json
from pathlib import PurePath

from dares.train.recipe import Recipe
from dares.train.start import StartSettings

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [dares, {scheme}]
---
# {name}

{about}.

A {family} decoder ({layers} layers, width {width}, {parameters:,} parameters) with residual scheme
`{scheme}`, {made} by [dares](https://arxiv.org/abs/2605.18855) for {steps:,} steps of
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


def write_card(recipe: Recipe, parameters: int, losses: list[float], curves: str) -> str:
    """The card's text; `losses` are all validation losses, in order."""
    start = recipe.start
    return CARD.format(
        name=recipe.name,
        about=recipe.about[:1].upper() + recipe.about[1:],
        family=recipe.model.family,
        layers=recipe.model.layers,
        width=recipe.model.width,
        parameters=parameters,
        scheme=recipe.depth.to_dict()["scheme"],
        made="trained from scratch" if start is None else _fine_tuned(start),
        steps=recipe.run.steps,
        tokens=recipe.tokens_per_step,
        loss=_loss(losses, before=start is not None),
        curves=curves,
        recipe=json.dumps(recipe.to_dict(), indent=1),
    )


def _fine_tuned(start: StartSettings) -> str:
    name = PurePath(start.checkpoint).name
    if start.lora_rank is not None:
        how = f" with LoRA of rank {start.lora_rank}, merged into these weights,"
    else:
        how = {"none": "", "base": ", its routers alone,", "routers": ", all but its routers,"}[
            start.freeze
        ]
    return f"fine-tuned from {name}{how}"


def _loss(losses: list[float], *, before: bool) -> str:
    if not losses:
        return "not measured"
    return f"{losses[-1]:.4f}" + (f", before {losses[0]:.4f}" if before else "")
