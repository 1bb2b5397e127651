"""Which base some routers belong to: its config, its shapes, its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from dares.adapters.parts import base_tensors, unwrapped
from dares.models.configs import to_base_config

# these say where a model came from, or how it is stored and called: not what it computes
INCIDENTAL = {
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "return_dict",
    "transformers_version",
    "use_cache",
}


@dataclass(frozen=True)
class BaseIdentity:
    """A base model, told apart from others.

    config   what its transformers config says, incidental fields left out
    shapes   a hash of every tensor's name and shape
    weights  a hash of every tensor's values: `weights_fingerprint`
    """

    config: dict[str, Any]
    shapes: str
    weights: str

    @classmethod
    def of(cls, model: Any) -> BaseIdentity:
        """The identity of a plain or routed model's base, inside whatever wrapper."""
        tensors = base_tensors(model)
        return cls(_config_table(model), _shapes(tensors), weights_fingerprint(model))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    def difference(self, model: Any) -> str | None:
        """Why a model's base is not this one; None if it is. What is cheap is looked at first."""
        table = _config_table(model)
        for field in sorted(self.config.keys() & table.keys()):
            if self.config[field] != table[field]:
                return f"its config has {field}={table[field]!r}, not {self.config[field]!r}"
        if _shapes(base_tensors(model)) != self.shapes:
            return "its tensors have other names or shapes"
        if weights_fingerprint(model) != self.weights:
            return "its weights are others, of another checkpoint or trained since"
        return None


def weights_fingerprint(model: Any) -> str:
    """A hash of every value of every base tensor, routers and PEFT's left out.

    Nothing is sampled: one changed value changes it. Values narrower than float32 are hashed as
    float32, which holds them exactly, so that a bf16 checkpoint is the same base in either dtype.
    """
    tensors = sorted(base_tensors(model).items())
    with ThreadPoolExecutor() as threads:  # hashing leaves the interpreter to others
        digests = list(threads.map(lambda item: _values_hash(item[1]), tensors))
    lines = (f"{name} {digest}" for (name, _), digest in zip(tensors, digests, strict=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _values_hash(tensor: Tensor) -> str:
    values = tensor.detach().cpu()
    if values.is_floating_point() and values.itemsize < torch.float32.itemsize:
        values = values.float()
    octets = values.contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(octets.data).hexdigest()


def _shapes(tensors: Mapping[str, Tensor]) -> str:
    lines = (f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(tensors.items()))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _config_table(model: Any) -> dict[str, Any]:
    config = unwrapped(model).config
    if hasattr(config, "base_model_type"):
        config = to_base_config(config)
    fields = json.loads(json.dumps(config.to_dict()))  # as it will be read: lists, names as text
    return {name: value for name, value in fields.items() if name not in INCIDENTAL}
