"""The documents of some inputs: files, folders and Hugging Face datasets in one sequence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dares.data.files import TextFile, find_files, looks_like_file, standard_library
from dares.data.hub import HubDataset, find_dataset

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass
class Tally:
    """What was met on the way through the documents."""

    documents: int = 0
    text_bytes: int = 0
    empty: int = 0  # documents without a character, which are left out
    replaced: int = 0  # bytes that were not UTF-8, each replaced by U+FFFD
    position: int = 0  # how far: bytes of the files read, characters of a dataset


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order: every pass gives the same ones."""

    sources: Sequence[TextFile | HubDataset]
    text_field: str
    limit: int | None  # the first so many documents
    skipped_files: int  # in the folders, of kinds that are not read

    @property
    def size(self) -> int | None:
        """Bytes of all files, None where there is no telling."""
        sizes = [source.size for source in self.sources if isinstance(source, TextFile)]
        known = len(sizes) == len(self.sources) and self.limit is None
        return sum(sizes) if known else None

    def documents(self, tally: Tally) -> Iterator[str]:
        """Each document's text, which can be encoded in UTF-8 and is not empty."""
        for source in self.sources:
            start = tally.position

            def at(position: int, start: int = start) -> None:
                tally.position = start + position

            for raw in source.documents(self.text_field, at):
                text = _encodable(raw, tally)
                if not text:
                    tally.empty += 1
                    continue
                tally.documents += 1
                tally.text_bytes += len(text.encode())
                yield text
                if tally.documents == self.limit:
                    return

    def fingerprint(self, progress: Callable[[int, int | None], None]) -> list[str]:
        """What the documents follow from: contents, not names of files."""
        parts, done = [f"text_field {self.text_field}", f"limit {self.limit}"], 0
        total = self.size
        for source in self.sources:
            parts.append(source.fingerprint())
            done += source.size if isinstance(source, TextFile) else 0
            progress(done, total)
        return parts

    def check_unchanged(self) -> None:
        """An error if an input is not what it was when it was found."""
        for source in self.sources:
            source.check_unchanged()


def find_corpus(
    inputs: Sequence[str | Path],
    *,
    text_field: str = "text",
    limit: int | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Corpus:
    """The documents of the inputs; of the standard library's source files if there are none.

    What is there on disk is a file or a folder; else `owner/name` or `owner/name@revision` is a
    Hugging Face dataset.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 document, got {limit}")
    found: list[TextFile | HubDataset] = []
    skipped = 0
    if not inputs:
        found.extend(standard_library())
    for given in inputs:
        name = str(given)
        if _is_here(name):
            files, others = find_files(name)
            found.extend(files)
            skipped += others
        elif isinstance(given, Path) or not is_dataset(name):
            raise ValueError(
                f"no such file or folder: {name} (a Hugging Face dataset is named owner/name)"
            )
        else:
            found.append(find_dataset(name, config, split, revision))
    # each once, however many names led to it: no text is seen twice
    sources = {source.identity: source for source in found}
    return Corpus(list(sources.values()), text_field, limit, skipped)


def is_dataset(name: str) -> bool:
    """Is it a name on the Hub, and nothing on this disk?"""
    return not _is_here(name) and not looks_like_file(name)


def _is_here(name: str) -> bool:
    return Path(name).expanduser().exists()


def pinned(inputs: Sequence[str], before: Sequence[str] = ()) -> tuple[str, ...]:
    """The same inputs, each dataset by its commit: what is read later is what is read now.

    before: inputs that were pinned when this text was first read; their commits stay.
    """
    known = {each.partition("@")[0]: each for each in before if "@" in each}
    return tuple(
        name
        if "@" in name or not is_dataset(name)
        else known.get(name) or f"{name}@{find_dataset(name, None, '', None).commit}"
        for name in inputs
    )


def _encodable(text: str, tally: Tally) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        text, count = _LONE_SURROGATES.subn("\ufffd", text)
        tally.replaced += count
    return text
