"""A model and its tokenizer from a folder; what is wrong with them in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from dares.doctor import guard_bf16
from dares.quiet import quiet

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(folder: Path, *, dtype: torch.dtype | None = None) -> Any:
    """The language model of a folder, ready to be used; dtype None is the checkpoint's own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = _from_pretrained(AutoConfig, folder)
    if torch.bfloat16 in (dtype, config.dtype) and not torch.cuda.is_available():
        guard_bf16()
    model, info = _from_pretrained(
        AutoModelForCausalLM,
        folder,
        config=config,
        dtype=dtype or "auto",
        use_safetensors=True,
        output_loading_info=True,
    )
    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(
            f"{folder} lacks {len(missing)} weights of a {type(model).__name__}, {missing[0]!r} "
            "among them: it is damaged, or not a language model"
        )
    return model.eval()


def load_tokenizer(folder: Path, vocabulary: int) -> Any:
    """The folder's own tokenizer, if it fits a model with that many embeddings."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises no narrower class
        raise ValueError(
            f"{folder} has no tokenizer that can be loaded ({_first_line(error)}): copy the base "
            "model's tokenizer files into it"
        ) from error
    ids = tokenizer.get_vocab().values()
    if not ids:
        raise ValueError(
            f"{folder} has no tokenizer: copy the base model's tokenizer files into it"
        )
    if max(ids) >= vocabulary:
        raise ValueError(
            f"the tokenizer in {folder} gives ids up to {max(ids):,}, the model has only "
            f"{vocabulary:,} embeddings: it is another model's tokenizer"
        )
    return tokenizer


def _from_pretrained(auto_class: Any, folder: Path, **options: Any) -> Any:
    try:
        with quiet():
            return auto_class.from_pretrained(folder, **options)
    except (OSError, KeyError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(
            f"the model in {folder} cannot be loaded ({_first_line(error)}): are its files whole, "
            "and does config.json belong to them?"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
