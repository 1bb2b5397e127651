"""Files of text on this machine: which there are, and what is in them."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dares.data.compression import COMPRESSIONS, decompressed
from dares.data.readers import READERS
from dares.names import unknown_name


@dataclass(frozen=True)
class TextFile:
    """One file, as it was when it was found."""

    path: Path
    kind: str  # a key of READERS
    compression: str  # one of COMPRESSIONS, or empty
    size: int
    changed: int

    @property
    def identity(self) -> str:
        """The same for every name of this file."""
        return os.path.realpath(self.path)

    def documents(self, field: str, at: Callable[[int], None]) -> Iterator[str]:
        """Its documents; `at` is told how many bytes of the file have been read."""
        name = str(self.path)
        with self.path.open("rb") as raw, decompressed(raw, self.compression, name) as stream:
            for text in READERS[self.kind](stream, field, name):
                at(min(raw.tell(), self.size))
                yield text
        at(self.size)

    def fingerprint(self) -> str:
        """What its documents follow from: the kind and the bytes, not the name."""
        digest = hashlib.blake2b(digest_size=16)
        with self.path.open("rb") as raw:
            while chunk := raw.read(1 << 20):
                digest.update(chunk)
        return f"{self.kind}{self.compression} {digest.hexdigest()}"

    def check_unchanged(self) -> None:
        """An error if somebody wrote to the file since it was found."""
        if (self.size, self.changed) != _stamp(self.path):
            raise ValueError(f"{self.path} changed while it was read: prepare again")


def looks_like_file(name: str) -> bool:
    """Whether a name that is not on this disk was meant to be a file or a folder of it."""
    known = (*READERS, *COMPRESSIONS)
    return name.startswith((".", "/", "~", "\\")) or name.endswith(known) or name.count("/") != 1


def standard_library() -> list[TextFile]:
    """The source files of Python's standard library: real text on every machine."""
    found, _ = _walk(Path(sysconfig.get_path("stdlib")), without="site-packages")
    return [file for file in found if file.kind == ".py"]


def find_files(name: str) -> tuple[list[TextFile], int]:
    """The files of text at a path, sorted, and how many of other kinds its folders hold.

    Hidden folders and links to folders are not entered.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        found, skipped = _walk(path)
        if not found:
            kinds = ", ".join(READERS)
            raise ValueError(
                f"no text in {name}: {skipped} files, none of a kind that is read ({kinds})"
            )
        return found, skipped
    file = _text_file(path)
    if file is None:
        kind = path.suffix or path.name
        raise ValueError(f"{name}: {unknown_name('kind of file', kind, READERS)}")
    return [file], 0


def _walk(folder: Path, without: str = "") -> tuple[list[TextFile], int]:
    found, skipped = [], 0
    for parent, folders, names in os.walk(folder):
        # hidden folders are tools' own: .git, .venv
        folders[:] = sorted(name for name in folders if name[0] != "." and name != without)
        for name in sorted(names):
            file = _text_file(Path(parent, name))
            if file is None:
                skipped += 1
            else:
                found.append(file)
    return found, skipped


def _text_file(path: Path) -> TextFile | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = suffixes[-1] if suffixes else ""
    if kind not in READERS or not path.is_file():
        return None
    return TextFile(path, kind, compression, *_stamp(path))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
