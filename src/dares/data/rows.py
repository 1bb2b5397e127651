"""Prepared data, read in place: rows of tokens in memory-mapped files."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT = 1  # one more whenever the same inputs would give other rows or another index
INDEX = "index.json"


class Rows:
    """One split. Every row has `row_tokens` ids; `lengths` says how many of them are true."""

    def __init__(self, folder: Path, split: dict[str, Any], row_tokens: int, dtype: str) -> None:
        self.row_tokens: int = row_tokens
        self.documents: int = split["documents"]
        self.tokens: int = split["tokens"]
        self._shards = [
            _map(folder / shard["file"], (shard["rows"], row_tokens), np.dtype(dtype))
            for shard in split["shards"]
        ]
        self._ends = list(accumulate(len(shard) for shard in self._shards))

    def __len__(self) -> int:
        return self._ends[-1]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """True tokens of each row: all of them, but for the last row's padding."""
        lengths = np.full(len(self), self.row_tokens, dtype=np.int64)
        lengths[-1] = self.tokens - (len(self) - 1) * self.row_tokens
        return lengths

    def row(self, index: int) -> npt.NDArray[np.int64]:
        """The ids of one row, padding included."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        shard = bisect_right(self._ends, index)
        start = self._ends[shard - 1] if shard else 0
        return self._shards[shard][index - start].astype(np.int64)

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Some rows as one array [rows, row_tokens]."""
        return np.stack([self.row(int(index)) for index in indices])


@dataclass(frozen=True)
class PackedData:
    """A prepared folder: two splits, and the tokenizer that made them."""

    path: Path
    train: Rows
    validation: Rows
    index: dict[str, Any] = field(repr=False)
    reused: bool = False  # whether `prepare` found it ready

    @classmethod
    def open(cls, path: str | Path, *, reused: bool = False) -> PackedData:
        """The data in a folder that `prepare` made."""
        path = Path(path)
        try:
            index = json.loads((path / INDEX).read_text())
            if index["format"] != FORMAT:
                raise ValueError(f"format {index['format']}, this version reads {FORMAT}")
            train, validation = (
                Rows(path, index["splits"][name], index["row_tokens"], index["dtype"])
                for name in ("train", "validation")
            )
            if not (path / "tokenizer" / "tokenizer_config.json").is_file():
                raise ValueError("its tokenizer is missing")
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} is not a whole folder of prepared data ({error}): remove it and run "
                "`dares prepare` again"
            ) from error
        return cls(path, train, validation, index, reused)

    @property
    def key(self) -> str:
        """The name that follows from inputs, tokenizer and options."""
        return str(self.index["key"])

    @property
    def tokenizer(self) -> Path:
        """A folder for `AutoTokenizer.from_pretrained`."""
        return self.path / "tokenizer"

    @property
    def vocabulary(self) -> int:
        """How many ids a model must have; every token is below."""
        return int(self.index["vocabulary"])

    @property
    def eos_id(self) -> int:
        """The id that ends every document."""
        return int(self.index["eos_id"])

    @property
    def row_tokens(self) -> int:
        """Tokens a row."""
        return self.train.row_tokens

    def summary(self) -> dict[str, Any]:
        """The figures of it, for a table or a log."""
        text, tokens = self.index["text"], self.train.tokens + self.validation.tokens
        return {
            "documents": text["documents"],
            "text_bytes": text["bytes"],
            "tokens": tokens,
            "train_tokens": self.train.tokens,
            "validation_tokens": self.validation.tokens,
            "train_rows": len(self.train),
            "validation_rows": len(self.validation),
            "row_tokens": self.row_tokens,
            "vocabulary": self.vocabulary,
            "bytes_per_token": text["bytes"] / tokens,
            "seconds": self.index["seconds"],
            "megabytes_per_second": text["bytes"] / 1e6 / self.index["seconds"],
            "empty_documents": text["empty"],
            "replaced_bytes": text["replaced"],
            "skipped_files": text["skipped_files"],
            "key": self.key,
            "path": str(self.path),
            "reused": self.reused,
        }


def _map(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    expected = shape[0] * shape[1] * dtype.itemsize
    found = path.stat().st_size
    if found != expected:
        raise ValueError(f"{path.name} has {found} bytes instead of {expected}")
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)
