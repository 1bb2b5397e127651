"""A .gguf file: dequantised by transformers, and laid down as an ordinary Hugging Face folder."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dares.models import family_module
from dares.pretrained.source import Source
from dares.quiet import quiet

SUFFIX = ".gguf"
_NEEDS = ("gguf", "accelerate")


@dataclass(frozen=True)
class GgufSource(Source):
    """One file with config, tokenizer and weights; path is that file."""

    @classmethod
    def open(cls, path: Path) -> GgufSource:
        """The file, if its family can be routed. Only its header is read."""
        if not path.is_file():
            raise ValueError(f"no such file: {path}")
        missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
        if missing:
            raise ValueError(
                f"reading .gguf needs {' and '.join(missing)}: pip install 'dares[gguf]'"
            )
        config = _from_gguf(_auto("AutoConfig"), path)
        family_module(config.model_type)
        if hasattr(config, "quantization_config"):
            del config.quantization_config  # what is written is not quantized
        config.dtype = torch.float32
        return cls(path.stem, path, config)

    def folder(self, work: Path, dtype: torch.dtype | None) -> Path:
        """The dequantised model, float32 unless told otherwise, and its tokenizer."""
        target = work / "dequantised"
        with quiet():
            model = _from_gguf(
                _auto("AutoModelForCausalLM"), self.path, dtype=dtype or torch.float32
            )
            with torch.device("meta"):
                # transformers saves no model that it knows as quantised
                plain = type(model)(self.config)
            plain.load_state_dict(model.state_dict(), assign=True)
            plain.tie_weights()
            plain.generation_config = model.generation_config
            plain.save_pretrained(target)
        _from_gguf(_auto("AutoTokenizer"), self.path).save_pretrained(target)
        return target


def _auto(name: str) -> Any:
    import transformers

    return getattr(transformers, name)


def _from_gguf(auto_class: Any, path: Path, **options: Any) -> Any:
    try:
        return auto_class.from_pretrained(str(path.parent), gguf_file=path.name, **options)
    except Exception as error:  # the readers raise whatever a damaged file leads them to
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{path} cannot be read as GGUF ({type(error).__name__}: {reason}): is it whole, and "
            "of an architecture that transformers reads?"
        ) from error
