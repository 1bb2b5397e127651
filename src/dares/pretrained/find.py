"""Which checkpoint a name stands for: a folder, a run, a .gguf file, a name on the Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dares.pretrained.authors import AuthorsSource, is_authors
from dares.pretrained.gguf import SUFFIX, GgufSource
from dares.pretrained.source import Source, family_config

CONFIG = "config.json"
RUN_MODEL = "model"  # where a run keeps its model
_SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "LICENSE*", "NOTICE*")
_WEIGHTS = ("*.safetensors",)


def find_source(name: str, *, weights: bool = True) -> Source:
    """The checkpoint of a name, its config read and checked; weights=False downloads none."""
    path = Path(name).expanduser()
    if path.suffix == SUFFIX:
        return GgufSource.open(path)
    folder = find_folder(name, weights=weights)
    fields = read_config(folder)
    # a card is shared: it names what was converted, not where it lay on this disk
    label = folder.resolve().name if path.is_dir() else name
    if is_authors(fields):
        return AuthorsSource.open(label, folder, fields)
    return Source(label, folder, family_config(folder, fields))


def find_folder(name: str, *, weights: bool = True) -> Path:
    """The folder on this disk that holds the model of a name."""
    path = Path(name).expanduser()
    if path.is_file():
        raise ValueError(
            f"{name} is a file: a model is a folder or a name on the Hub; `dares convert` makes a "
            f"folder of a {SUFFIX}"
        )
    if path.is_dir():
        for folder in (path, path / RUN_MODEL):
            if (folder / CONFIG).is_file():
                return folder
        raise ValueError(f"{name} has no {CONFIG}: it is not a Hugging Face model's folder")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise ValueError(f"no such folder: {name!r} (a model on the Hub is named owner/name)")
    return _download(name, weights=weights)


def read_config(folder: Path) -> dict[str, Any]:
    """The fields of a folder's config.json."""
    path = folder / CONFIG
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON ({error}): copy or download it again") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise ValueError(f"{path} names no model_type: it is not a Hugging Face model's config")
    return fields


def _download(name: str, *, weights: bool) -> Path:
    """The Hub's files of a model, or those that are in the cache when offline."""
    from huggingface_hub import snapshot_download  # comes with transformers

    wanted = [*_SMALL, *(_WEIGHTS if weights else ())]
    try:
        # no folders: they hold other formats of the same weights
        found = Path(snapshot_download(name, allow_patterns=wanted, ignore_patterns="*/*"))
    except (OSError, ValueError) as error:  # every failure of the hub and of the network is one
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{name!r} is no folder here, and no model that can be reached on the Hugging Face "
            f"Hub ({reason})"
        ) from error
    if not (found / CONFIG).is_file():
        raise ValueError(f"{name!r} on the Hub has no {CONFIG}: it is not a transformers model")
    return found
