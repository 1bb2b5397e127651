"""Where commands print, and to which files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

console = Console()


def check_folder(path: Path | None) -> Path | None:
    """For a file that is written at the end: an error at once if it cannot be."""
    if path is not None and not path.absolute().parent.is_dir():
        raise ValueError(f"{str(path)!r} is in a folder that does not exist: create it first")
    return path
