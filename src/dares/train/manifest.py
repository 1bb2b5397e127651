"""What a checkpoint's files should be: the size and hash of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MANIFEST, PROGRESS, METADATA = "manifest.json", "progress.json", ".metadata"


def describe_files(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """The manifest's entries for some files."""
    return {
        name: {"bytes": (folder / name).stat().st_size, "blake2b": _hash(folder / name)}
        for name in names
    }


def find_damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint's files; None if they are what the manifest says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        for needed in (PROGRESS, METADATA):
            if needed not in manifest:
                return f"{MANIFEST} does not name {needed}"
        for name, expected in manifest.items():
            file = folder / name
            if file.stat().st_size != expected["bytes"]:
                return f"{name} has {file.stat().st_size} bytes instead of {expected['bytes']}"
            if _hash(file) != expected["blake2b"]:
                return f"{name} has other contents than were written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
