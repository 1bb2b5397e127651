"""Tokens to rows of equal length, in files of bounded size."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

SHARD_BYTES = 256 << 20


def token_dtype(vocabulary: int) -> np.dtype[Any]:
    """The smallest type that holds every id, little-endian on every machine."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


class RowWriter:
    """Writes one split: `<name>-00000.bin`, `<name>-00001.bin`, ..."""

    def __init__(
        self, folder: Path, name: str, row_tokens: int, dtype: np.dtype[Any], padding: int
    ) -> None:
        self.folder, self.name, self.row_tokens = folder, name, row_tokens
        self.dtype, self.padding = dtype, padding
        self.shard_rows = max(1, SHARD_BYTES // (row_tokens * dtype.itemsize))
        self.documents = self.tokens = 0
        self.shards: list[dict[str, Any]] = []
        self._file: BinaryIO | None = None
        self._pending: list[npt.NDArray[Any]] = []
        self._pending_tokens = 0

    def add(self, ids: list[int], eos: int) -> None:
        """One document and the end of it."""
        tokens = np.array([*ids, eos], dtype=self.dtype)
        self.documents += 1
        self.tokens += len(tokens)
        self._pending.append(tokens)
        self._pending_tokens += len(tokens)

    def flush(self) -> None:
        """Write the rows that are full."""
        if self._pending_tokens < self.row_tokens:
            return
        tokens = np.concatenate(self._pending)
        full = len(tokens) // self.row_tokens * self.row_tokens
        self._write(tokens[:full].reshape(-1, self.row_tokens))
        self._pending, self._pending_tokens = [tokens[full:]], len(tokens) - full

    def finish(self) -> dict[str, Any]:
        """Write the last row, padded to its length, and give this split's part of the index."""
        self.flush()
        if self._pending_tokens:
            row = np.full((1, self.row_tokens), self.padding, dtype=self.dtype)
            row[0, : self._pending_tokens] = np.concatenate(self._pending)
            self._write(row)
        self.close()
        return {"documents": self.documents, "tokens": self.tokens, "shards": self.shards}

    def close(self) -> None:
        """Let go of the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, rows: npt.NDArray[Any]) -> None:
        while len(rows):
            if self._file is None or self.shards[-1]["rows"] == self.shard_rows:
                self.close()
                name = f"{self.name}-{len(self.shards):05d}.bin"
                self._file = (self.folder / name).open("wb")
                self.shards.append({"file": name, "rows": 0})
            room = self.shard_rows - self.shards[-1]["rows"]
            self._file.write(rows[:room].tobytes())
            self.shards[-1]["rows"] += len(rows[:room])
            rows = rows[room:]
