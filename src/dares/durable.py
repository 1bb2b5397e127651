"""Files that are there whole or not at all, also after a power cut or on a full disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

PART = ".part"  # ends the name of what is not whole yet


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader sees the old or the new one, whole."""
    temporary = path.with_name(path.name + PART)
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names in a folder last through a power cut."""
    if os.name != "posix":
        return  # a folder cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A folder to fill that takes this name, and the place of one that had it, when all is well."""
    part = folder.with_name(folder.name + PART)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(part, folder)
    sync_folder(folder.parent)


@contextmanager
def writing(what: str, *, training: bool = False) -> Iterator[None]:
    """Around a write: where the disk refuses, the user is told in a sentence."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ValueError(not_written(what, error, training=training)) from error


def not_written(what: str, error: BaseException, *, training: bool = False) -> str:
    """The sentence for a write that failed; `training`: a run may have checkpoints."""
    advice = (
        "; the checkpoints there are remain whole: make room and go on with --resume"
        if training
        else ": make room, or choose another place"
    )
    return f"{what} could not be written ({reason(error)}){advice}"


def reason(error: BaseException) -> str:
    """The reason of a failed write in a few words, however deep torch has wrapped it."""
    errors = _all_errors(error)
    for each in errors:
        if isinstance(each, OSError) and each.errno in (errno.ENOSPC, errno.EDQUOT):
            return "the disk is full"
    for each in errors:
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    last = errors[-1]
    words = str(last).strip().splitlines() or [""]
    return f"{type(last).__name__}: {words[0]}"


def _all_errors(error: BaseException) -> list[BaseException]:
    """The error and those it came of: its causes, and what ranks met (CheckpointException)."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        found.append(each)
        waiting += [cause for cause in (each.__context__, each.__cause__) if cause is not None]
        waiting += [met for met, _ in getattr(each, "failures", {}).values()]
    return found
