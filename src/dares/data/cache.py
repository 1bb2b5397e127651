"""Folders that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dares.durable import sync_folder
from dares.processes import alive, place


def cache_folder(cache: str | Path | None = None) -> Path:
    """Where prepared data lives: the one asked for, `$DARES_CACHE`, or `~/.cache/dares`."""
    chosen = cache or os.environ.get("DARES_CACHE") or "~/.cache/dares"
    return Path(chosen).expanduser()


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """A temporary folder beside `final` that takes its name when the block ends well.

    Where another process was faster, its folder stays and this one goes: the name says the content.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_over(final.parent)
    owner = f"{_here()}-{os.getpid()}-{secrets.token_hex(4)}"
    temporary = final.with_name(f"{final.name}.tmp-{owner}")
    temporary.mkdir()
    try:
        yield temporary
        _sync(temporary)
        try:
            temporary.replace(final)
        except OSError:
            if not final.is_dir():
                raise
        sync_folder(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_left_over(folder: Path) -> None:
    """Remove temporary folders of this machine's processes that are dead."""
    if os.name != "posix":
        return  # where os.kill(pid, 0) is not a question
    for path in folder.glob(f"*.tmp-{_here()}-*"):
        pid = int(path.name.rsplit("-", 2)[1])
        if not alive(pid):
            shutil.rmtree(path, ignore_errors=True)


def _here() -> str:
    return "".join(c if c.isalnum() else "_" for c in place())


def _sync(folder: Path) -> None:
    """To the disk before the name is given: a power cut must not leave a name without content."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb+") as file:
                os.fsync(file.fileno())
        sync_folder(Path(parent))
