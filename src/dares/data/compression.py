"""Compressed files, read as a stream."""

from __future__ import annotations

import gzip
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from dares.data.optional import optional_module

COMPRESSIONS = (".gz", ".zst", ".xz")


@contextmanager
def decompressed(raw: BinaryIO, compression: str, name: str) -> Iterator[BinaryIO]:
    """The plain bytes behind a file's; `compression` is one of the suffixes above, or empty."""
    if not compression:
        yield raw
        return
    library, damage = _library(compression)
    try:
        with library.open(raw, "rb") as stream:
            yield stream
    except (EOFError, damage, zlib.error) as error:
        raise ValueError(f"{name} is damaged or cut short ({error}): make it again") from error


def _library(compression: str) -> tuple[Any, type[Exception]]:
    """The module that opens it, and what it raises for damaged files."""
    if compression == ".gz":
        return gzip, gzip.BadGzipFile
    if compression == ".xz":
        return lzma, lzma.LZMAError
    assert compression == ".zst"
    # The backport is Python 3.14's own module: it reads every frame, and a file cut short raises.
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    zstd = optional_module(module, "reading .zst")
    return zstd, zstd.ZstdError
