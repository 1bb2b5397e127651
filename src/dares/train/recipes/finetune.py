"""Fine-tuning of a pretrained model, by the recipe of the Delta Attention Residuals paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from dares.config import StandardConfig
from dares.pretrained.find import find_folder
from dares.train.pretrained import checkpoint_config, scheme_of_checkpoint, shape_of
from dares.train.recipe import BatchSettings, DataSettings, OptimSettings, Recipe, RunSettings
from dares.train.start import StartSettings

STEPS = 1000
ROW_TOKENS = 2048  # as in the paper, where the model has as many positions


def finetune(checkpoint: str, inputs: Sequence[str], *, steps: int | None = None) -> Recipe:
    """Go on from a checkpoint, with text of one's own and the scheme that it has.

    AdamW (0.9, 0.95) at 5e-5, routers at 5e-3 and without decay, a cosine to a tenth.
    """
    if not inputs:
        raise ValueError("there is no text to fine-tune on: name some with --data")
    config = checkpoint_config(checkpoint)
    positions = getattr(config, "max_position_embeddings", None) or ROW_TOKENS
    steps = STEPS if steps is None else steps
    return Recipe(
        name=PurePath(checkpoint).name,
        about=f"fine-tuning of {PurePath(checkpoint).name}",
        start=StartSettings(checkpoint=checkpoint),
        model=shape_of(config),
        depth=scheme_of_checkpoint(config) or StandardConfig(),
        data=DataSettings(
            inputs=tuple(inputs),
            tokenizer=str(find_folder(checkpoint)),
            row_tokens=min(ROW_TOKENS, positions),
            validation=0.1,  # text to fine-tune on is often short
        ),
        optim=OptimSettings(lr=5e-5, router_lr=5e-3, warmup=max(0, min(100, steps // 10))),
        batch=BatchSettings(rows=16, micro_rows=4),
        run=RunSettings(steps=steps, eval_every=100, checkpoint_every=500),
    )
