"""The papers' sizes with their published settings (2605.18855).

Blocks of 2 layers at 220M: its published Delta Block figure is the one of B = 2. The block size of
the others was not stated; theirs is ours. So are tokens a step below 8B (what the 8B run had),
documents of the dataset, rows a forward pass and how often a run is looked at.
"""

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


def qwen3_220m() -> Recipe:
    """The smallest: every other size is made from it."""
    return Recipe(
        name="220m",
        about="the paper's 220M: width 768, 12 layers, FineWeb-Edu",
        model=ModelShape(
            width=768, layers=12, heads=12, kv_heads=4, head_dim=64, mlp=3072, vocabulary=151_936
        ),
        depth=preset("delta_block", block=2),
        data=DataSettings(
            inputs=("HuggingFaceFW/fineweb-edu",),
            tokenizer="Qwen/Qwen3-0.6B",
            row_tokens=2048,
            # 10,000 steps read 1.3 billion tokens, about a thousand to a document
            limit=1_500_000,
            validation=0.002,
        ),
        optim=OptimSettings(lr=6e-4, warmup=1000),
        batch=BatchSettings(rows=64, micro_rows=4),
        run=RunSettings(
            steps=10_000, eval_every=500, eval_rows=256, checkpoint_every=1000, precision="bf16"
        ),
    )


def qwen3_533m() -> Recipe:
    """Twice as deep, blocks of 4 layers."""
    base = qwen3_220m()
    return replace(
        base,
        name="533m",
        about="the paper's 533M: width 1024, 24 layers",
        model=replace(base.model, width=1024, layers=24, heads=16, kv_heads=8, mlp=4096),
        depth=preset("delta_block", block=4),
    )


def qwen3_1044m() -> Recipe:
    """The largest of the small ones."""
    base = qwen3_533m()
    return replace(
        base,
        name="1044m",
        about="the paper's 1044M: width 1280, 36 layers",
        model=replace(base.model, width=1280, layers=36, heads=20, kv_heads=4, mlp=5120),
    )


def qwen3_0p6b() -> Recipe:
    """Heads wider than the stream."""
    base = qwen3_533m()
    return replace(
        base,
        name="0.6b",
        about="the shape of Qwen3-0.6B: width 1024, 28 layers",
        model=replace(base.model, layers=28, head_dim=128, mlp=3072),
    )


def qwen3_8b() -> Recipe:
    """On 8 GPUs of 80 GB, says `dares plan`, 2 rows a pass need gradient checkpointing."""
    base = qwen3_0p6b()
    return replace(
        base,
        name="8b",
        about="the paper's 8B (7.57B with tied embeddings): width 4096, 36 layers",
        model=replace(base.model, width=4096, layers=36, heads=32, mlp=12_288),
        optim=replace(base.optim, lr=3e-4, warmup=500),
        batch=BatchSettings(rows=64, micro_rows=2),
        run=replace(base.run, gradient_checkpointing=True),
    )
