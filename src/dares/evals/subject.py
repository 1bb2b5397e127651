"""The model that is examined: found, loaded and checked before anything is measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dares.pretrained.find import RUN_MODEL, find_folder
from dares.pretrained.loading import load_model, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Subject:
    """A causal language model with its tokenizer, ready to be run."""

    name: str
    model: Any
    tokenizer: PreTrainedTokenizerBase
    positions: int  # the longest input it takes

    @property
    def dtype(self) -> str:
        """The type of its weights while it is examined."""
        return str(self.model.dtype).removeprefix("torch.")

    def fingerprint(self) -> str:
        """What its answers follow from: config, every weight, the tokenizer."""
        digest = hashlib.blake2b(digest_size=16)
        config = self.model.config.to_dict()
        for incidental in ("_name_or_path", "transformers_version"):
            config.pop(incidental, None)
        digest.update(json.dumps(config, sort_keys=True, default=str).encode())
        digest.update(self.tokenizer.backend_tokenizer.to_str().encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def model_label(name: str) -> str:
    """What a model is called in tables: the last part of its path, the run's name for RUN/model."""
    path = Path(name)
    return path.parent.name if path.name == RUN_MODEL and path.parent.name else path.name or name


def model_labels(names: Sequence[str]) -> list[str]:
    """What several models are called beside one another: their whole names where labels clash."""
    for labels in ([model_label(name) for name in names], list(names)):
        if len(set(labels)) == len(labels):
            return labels
    raise ValueError("a model was named twice: name each once")


def load_subject(name: str) -> Subject:
    """The model in a folder, in a run's folder, or of that name on the Hugging Face Hub.

    On a CPU its weights are widened to float32: narrow products are slow there, and crash on
    some machines. On a GPU they keep the type they were saved in.
    """
    cuda = torch.cuda.is_available()
    folder = find_folder(name)
    model = load_model(folder, dtype=None if cuda else torch.float32).to("cuda" if cuda else "cpu")
    tokenizer = load_tokenizer(folder, model.get_input_embeddings().num_embeddings)
    if not tokenizer.is_fast:
        raise ValueError(f"the tokenizer of {name} has no tokenizer.json: convert it to one")
    return Subject(name, model, tokenizer, _positions(name, model.config))


def _positions(name: str, config: Any) -> int:
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if positions is None:
        raise ValueError(f"the config of {name} does not say how many positions the model has")
    return int(positions)
