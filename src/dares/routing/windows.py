"""A text as windows of tokens: documents end to end, cut into rows of equal length."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dares.data.documents import Tally, find_corpus
from dares.data.tokenizer import DocumentTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Windows:
    """The first tokens of some files, read anew at every pass: only one document is in memory.

    Documents are followed by the end-of-sequence token, where the tokenizer has one. A last window
    that is not full is left out.
    """

    inputs: Sequence[Path]
    tokenizer: PreTrainedTokenizerBase
    window: int  # tokens a window
    count: int  # windows at most
    rows: int = 4  # windows a batch

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"window must be at least 2 tokens, got {self.window}")
        if self.rows < 1:
            raise ValueError(f"batch must be at least 1 window, got {self.rows}")
        if self.count < 1:
            raise ValueError(f"count must be at least 1 window, got {self.count}")

    def __iter__(self) -> Iterator[Tensor]:
        """Batches of token ids [rows, window]; the last may have fewer rows."""
        windows = itertools.islice(self._windows(), self.count)
        while batch := list(itertools.islice(windows, self.rows)):
            yield torch.tensor(batch)

    def _windows(self) -> Iterator[list[int]]:
        encoder, tally = DocumentTokenizer(self.tokenizer), Tally()
        end = [] if encoder.eos_id is None else [encoder.eos_id]
        held: list[int] = []
        found = False
        for text in find_corpus(list(self.inputs)).documents(tally):
            if tally.replaced or "\0" in text:
                raise ValueError(
                    f"{self._names()} is not UTF-8 text: convert it, with "
                    "`iconv -f latin1 -t utf-8` for example"
                )
            held += encoder.encode([text])[0] + end
            while len(held) >= self.window:
                found = True
                yield held[: self.window]
                held = held[self.window :]
        if found:
            return
        if not tally.documents:
            raise ValueError(f"{self._names()} holds no text: give a file that does")
        raise ValueError(
            f"{self._names()} has {len(held)} tokens, fewer than one window of {self.window}: give "
            "more text, or a smaller --window"
        )

    def _names(self) -> str:
        return ", ".join(str(path) for path in self.inputs)
