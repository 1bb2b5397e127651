"""The weights' files: found and checked, then written again one at a time.

A shard in which nothing changes is copied as it is. The new tensors go into a small shard of their
own, so that no more than one shard is ever in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
AGAIN = "copy or download it again"


@dataclass(frozen=True)
class Shard:
    """One safetensors file and the names of the tensors in it."""

    path: Path
    names: tuple[str, ...]

    def read(self, name: str) -> Tensor:
        """One tensor."""
        with safe_open(self.path, framework="pt") as file:
            return file.get_tensor(name)


def find_shards(folder: Path) -> list[Shard]:
    """The files of a folder's weights, every one there and readable."""
    if (folder / SINGLE).is_file():  # transformers takes it before the index
        return [_open(folder / SINGLE)]
    if not (folder / INDEX).is_file():
        if any(folder.glob("*.bin")):
            raise ValueError(
                f"{folder} holds its weights in .bin files, which can run code, and only "
                "safetensors are read: load it with AutoModelForCausalLM where you trust it and "
                "save_pretrained it to another folder"
            )
        raise ValueError(f"{folder} has no weights ({SINGLE} or {INDEX}): {AGAIN}")
    places = _places(folder / INDEX)
    shards = [_open(folder / file) for file in sorted(set(places.values()))]
    found = {name: shard.path.name for shard in shards for name in shard.names}
    for name, file in places.items():
        if found.get(name) != file:
            raise ValueError(f"{folder / file} lacks {name!r}, which the index puts there: {AGAIN}")
    return shards


def _places(index: Path) -> dict[str, str]:
    """Tensor -> file, as the index says."""
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{index} is not an index of shards: {AGAIN}") from error
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index} names no tensors: {AGAIN}")
    return places


def _open(path: Path) -> Shard:
    if not path.is_file():
        raise ValueError(f"the shard {path} is missing: {AGAIN}")
    try:
        with safe_open(path, framework="pt") as file:
            return Shard(path, tuple(file.keys()))
    except SafetensorError as error:
        raise ValueError(f"the weights file {path} is damaged ({error}): {AGAIN}") from error


def write_shards(
    shards: Sequence[Shard],
    routers: dict[str, Tensor],
    folder: Path,
    *,
    keep: Callable[[str], bool],
    dtype: torch.dtype | None,
) -> int:
    """Write the kept tensors and the routers as shards with an index; gives the number of files.

    dtype: what floating point tensors become; None leaves every tensor as it is. The routers are
    written as they are: a gain of 1.0 in half precision would never move.
    """
    kept = [(shard, [name for name in shard.names if keep(name)]) for shard in shards]
    kept = [(shard, names) for shard, names in kept if names]
    index = _Index(folder, files=len(kept) + 1)
    for shard, names in kept:
        file = index.next_file()
        if dtype is None and len(names) == len(shard.names):
            shutil.copyfile(shard.path, file)
        else:
            _save({name: _cast(shard.read(name), dtype) for name in names}, file)
        _check_copy(shard, names, file, dtype)
        index.add(file)
    file = index.next_file()
    _save({name: tensor.contiguous() for name, tensor in routers.items()}, file)
    index.add(file)
    index.write()
    return index.files


def _save(tensors: dict[str, Tensor], file: Path) -> None:
    save_file(tensors, file, metadata={"format": "pt"})  # transformers asks for the format


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def _check_copy(shard: Shard, names: list[str], file: Path, dtype: torch.dtype | None) -> None:
    """What is on the disk now is what was read, to the last bit."""
    written = Shard(file, tuple(names))
    for name in names:
        expected, found = _cast(shard.read(name), dtype), written.read(name)
        if expected.dtype != found.dtype or not _same_bits(expected, found):
            raise ValueError(
                f"{name!r} was not written as it is in {shard.path}: is the disk sound, or did "
                "another program change the source?"
            )


def _same_bits(one: Tensor, other: Tensor) -> bool:
    def raw(tensor: Tensor) -> Tensor:  # NaN is not equal to itself
        return tensor.reshape(-1).view(torch.uint8)

    return one.shape == other.shape and torch.equal(raw(one), raw(other))


class _Index:
    """The index file, filled while the shards are written."""

    def __init__(self, folder: Path, *, files: int) -> None:
        self.folder, self.files = folder, files
        self._places: dict[str, str] = {}
        self._written = self._bytes = self._numbers = 0

    def next_file(self) -> Path:
        """Where the next shard goes: the names by which transformers knows shards from others."""
        self._written += 1
        return self.folder / f"model-{self._written:05}-of-{self.files:05}.safetensors"

    def add(self, file: Path) -> None:
        """Take down what is in a shard."""
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118, it is no dict
                tensor = opened.get_tensor(name)
                self._places[name] = file.name
                self._bytes += tensor.nbytes
                self._numbers += tensor.numel()

    def write(self) -> None:
        sizes: dict[str, Any] = {"total_parameters": self._numbers, "total_size": self._bytes}
        content = {"metadata": sizes, "weight_map": dict(sorted(self._places.items()))}
        (self.folder / INDEX).write_text(json.dumps(content, indent=2) + "\n")
