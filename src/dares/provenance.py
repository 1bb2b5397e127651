"""What figures were made with: versions, the commit, the machine."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from functools import cache
from pathlib import Path

from dares.processes import cores
from dares.version import VERSION


def versions() -> dict[str, str | None]:
    """dares, its commit, and what it stands on; None for what is not known or not installed."""
    found: dict[str, str | None] = {"dares": VERSION, "commit": commit()}
    for package in ("torch", "transformers", "lm-eval"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def known_versions() -> dict[str, str]:
    """Those of `versions` that there are, for a page."""
    return {name: version for name, version in versions().items() if version}


@cache
def commit() -> str | None:
    """The commit of the checkout that dares runs from, `-dirty` where files were changed since."""
    return commit_of(Path(__file__))


def commit_of(file: Path) -> str | None:
    """The commit of a file's checkout; None where git does not keep the file."""
    try:
        # asked first: an installed package may lie in somebody else's checkout
        _git(file, "ls-files", "--error-unmatch", file.name)
        return _git(file, "describe", "--always", "--dirty", "--exclude", "*")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(file: Path, *arguments: str) -> str:
    command = ["git", "-C", str(file.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine() -> str:
    """GPUs, or the processor and its cores; then the kind of machine and the system."""
    import torch

    if torch.cuda.is_available():
        parts = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    else:
        count = cores()
        parts = f"{_processor()}, {count} core{'s' * (count != 1)}"
    return f"{parts}, {platform.machine()}, {platform.system()}"


def _processor() -> str:
    """The processor's name; platform knows it only on some systems."""
    told = Path("/proc/cpuinfo")
    for line in told.read_text().splitlines() if told.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or "a CPU"
