"""The documents in one stream of bytes, for every kind of file. None holds a whole file."""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from dares.data.optional import optional_module
from dares.names import unknown_name

WHOLE = 1 << 20  # characters: a plain file up to here is one document
PIECE = 64 << 10  # characters: a larger one is cut at the first blank line after as many
_BLANK_LINES = re.compile(r"\n\s*\n")


def read_plain(stream: BinaryIO, field: str, name: str) -> Iterator[str]:
    """The whole text, or pieces that give it back when joined: nothing is left out."""
    text = _decoded(stream, newline="")
    held = text.read(WHOLE)
    if len(held) < WHOLE:
        yield held
        return
    while held:
        end = _piece_end(held)
        yield held[:end]
        held = held[end:] + text.read(end)


def _piece_end(held: str) -> int:
    blank = _BLANK_LINES.search(held, PIECE)
    if blank:
        return blank.end()
    if len(held) < WHOLE:
        return len(held)  # the end of the file
    return held.rfind("\n") + 1 or WHOLE


def read_jsonl(stream: BinaryIO, field: str, name: str) -> Iterator[str]:
    """One document a line; blank lines are none."""
    for number, line in enumerate(_decoded(stream, newline="\n"), start=1):
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{name} line {number} is not JSON ({error}): mend it") from error
        yield text_of(row, field, f"{name} line {number}")


def read_parquet(stream: BinaryIO, field: str, name: str) -> Iterator[str]:
    """One document a row, read a few rows at a time."""
    pyarrow = optional_module("pyarrow", "reading .parquet")
    parquet = optional_module("pyarrow.parquet", "reading .parquet")
    with tempfile.TemporaryFile() as spooled:
        source: Any = stream
        if not isinstance(stream, io.BufferedReader):
            # parquet is read from its end, which a decompressed stream cannot give
            shutil.copyfileobj(stream, spooled)
            source = spooled
        try:
            file = parquet.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
            if field not in file.schema_arrow.names:
                raise ValueError(
                    f"{name}: {unknown_name('text field', field, file.schema_arrow.names)}"
                )
            number = 0
            for batch in file.iter_batches(batch_size=256, columns=[field]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    yield text_of({field: text}, field, f"{name} row {number}")
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{name} is not a readable parquet file ({error})") from error


def text_of(row: Any, field: str, where: str) -> str:
    """The text in one row of a table of documents."""
    if not isinstance(row, Mapping):
        raise ValueError(
            f"{where} is a {type(row).__name__}; a document is an object with a field {field!r}"
        )
    if field not in row:
        raise ValueError(f"{where}: {unknown_name('text field', field, map(str, row))}")
    text = row[field]
    if not isinstance(text, str):
        raise ValueError(
            f"{where} has a {type(text).__name__} in {field!r}; a document's text is a string"
        )
    return text


def _decoded(stream: BinaryIO, *, newline: str) -> io.TextIOWrapper:
    # Undecodable bytes become lone surrogates here; `documents` replaces and counts them.
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline=newline)


Reader = Callable[[BinaryIO, str, str], Iterator[str]]
READERS: dict[str, Reader] = {
    ".txt": read_plain,
    ".md": read_plain,
    ".py": read_plain,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
