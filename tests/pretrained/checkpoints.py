"""Tiny checkpoints on disk, with a tokenizer that fits them, and text to measure on."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from dares.data.tokenizer import train_tokenizer
from tests.models.families import tiny_config

VOCABULARY = 300
SENTENCES = "The cat saw a red ball. It ran, and the ball rolled away under the old table.\n"


@functools.cache
def tokenizer() -> Any:
    return train_tokenizer([SENTENCES], VOCABULARY)


def write_text(folder: Path, *, repeats: int = 400) -> Path:
    path = folder / "text.txt"
    path.write_text(SENTENCES * repeats)
    return path


def tiny_checkpoint(
    folder: Path, family: str = "llama", *, shards: str = "5GB", seed: int = 0, **changes: Any
) -> Path:
    """A folder as `save_pretrained` leaves it, with random weights and norm gains."""
    torch.manual_seed(seed)
    settings = {"vocab_size": VOCABULARY, "max_position_embeddings": 256, **changes}
    model = AutoModelForCausalLM.from_config(tiny_config(family, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size=shards)
    tokenizer().save(folder)
    return folder


@torch.no_grad()
def logits(folder: Path, *, exact: bool = False, **options: Any) -> torch.Tensor:
    """What a checkpoint says, loaded in the plainest way; exact: computed in float64."""
    model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    if exact:
        model.double()
    return model(torch.arange(3, 43).view(2, 20)).logits
