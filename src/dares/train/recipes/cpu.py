"""Recipes for two CPU cores, on text that every machine with Python has."""

from __future__ import annotations

from dataclasses import replace

from dares.presets import preset
from dares.train.recipe import (
    BatchSettings,
    DataSettings,
    ModelShape,
    OptimSettings,
    Recipe,
    RunSettings,
)


def tiny() -> Recipe:
    """Seconds: every part of a run, and nothing learned worth speaking of."""
    return Recipe(
        name="tiny",
        about="seconds on two CPU cores: a run to try things with",
        model=ModelShape(
            width=64, layers=4, heads=4, kv_heads=2, head_dim=16, mlp=192, vocabulary=4096
        ),
        depth=preset("delta_block", block=2),
        data=DataSettings(row_tokens=128),
        optim=OptimSettings(lr=3e-3, warmup=10),
        batch=BatchSettings(rows=8, micro_rows=8),
        run=RunSettings(steps=60, eval_every=30, eval_rows=16, checkpoint_every=30),
    )


def mini() -> Recipe:
    """A minute or so: schemes can be told apart, if only just."""
    base = tiny()
    return replace(
        base,
        name="mini",
        about="about a minute on two CPU cores",
        model=replace(base.model, width=128, layers=8, head_dim=32, mlp=384),
        data=replace(base.data, row_tokens=256),
        optim=replace(base.optim, warmup=20),
        run=replace(base.run, steps=160, eval_every=40, eval_rows=32, checkpoint_every=80),
    )


def small() -> Recipe:
    """An hour or so."""
    base = mini()
    return replace(
        base,
        name="small",
        about="about an hour on two CPU cores",
        model=replace(base.model, width=256, layers=12, kv_heads=4, head_dim=64, mlp=768),
        optim=replace(base.optim, lr=1e-3, warmup=200),
        run=replace(base.run, steps=2500, eval_every=500, eval_rows=128, checkpoint_every=500),
    )
