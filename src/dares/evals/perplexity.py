"""Perplexity on text by a sliding window, every token accounted for.

A document is a start token (BOS, else EOS; context, and never predicted) and the tokens of its
text, nothing else: no token is added at the end, and "</s>" in a text is text. The model is shown
at most `window` tokens. The first window predicts as many; every later one predicts the next
`stride`, with the window - stride tokens before them, or more, in view. So each token is predicted
exactly once.

Bits per byte divide by the bytes of the text in UTF-8, as given (a byte order mark at the start of
a file is not text). A tokenizer with neither BOS nor EOS leaves a document's first token
unpredicted; bits per byte would flatter it, so there are none then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dares.data.tokenizer import DocumentTokenizer
from dares.evals.scoring import Passage, Scorer
from dares.evals.subject import Subject
from dares.evals.texts import Document, Text

DEFAULT_WINDOW = 2048
AT_ONCE = 512  # windows in memory: with a small stride they overlap nearly whole

Progress = Callable[[int, int], None]  # windows done, windows in all


@dataclass(frozen=True)
class Window:
    """Tokens begin to end - 1 of a document, of which the last `predicted` are predicted."""

    begin: int
    end: int
    predicted: int


def choose_window(positions: int, window: int | None, stride: int | None) -> tuple[int, int]:
    """The window and stride to use: by default 2,048 tokens or what the model takes, and half."""
    window = min(positions, DEFAULT_WINDOW) if window is None else window
    if not 1 <= window <= positions:
        raise ValueError(
            f"window must be between 1 and {positions} (the model's positions), got {window}"
        )
    stride = max(1, window // 2) if stride is None else stride
    if not 1 <= stride <= window:
        raise ValueError(f"stride must be between 1 and {window} (the window), got {stride}")
    return window, stride


def windows(tokens: int, window: int, stride: int) -> Iterator[Window]:
    """The windows over a document of so many tokens, each token but the first predicted once."""
    end = min(tokens, window + 1)
    if end > 1:
        yield Window(0, end, end - 1)
    while end < tokens:
        predicted = min(stride, tokens - end)
        end += predicted
        yield Window(end - window - 1, end, predicted)


def measure(
    subject: Subject,
    text: Text,
    *,
    window: int,
    stride: int,
    scorer: Scorer,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """The results of a text: sums of bytes, tokens and nats, of each document and of its pieces."""
    tokenizer = _OffsetTokenizer(subject.tokenizer)
    start = start_token(subject)
    tokenized = [tokenizer.tokenize(document.text, start) for document in text.documents]
    nats = _score(scorer, [ids for ids, _ in tokenized], window, stride, progress)
    documents = [
        _document_sums(document, starts, values, skipped=int(start is None))
        for document, (_, starts), values in zip(text.documents, tokenized, nats, strict=True)
    ]
    totals = {key: sum(each[key] for each in documents) for key in ("bytes", "tokens", "nats")}
    if not totals["tokens"]:
        raise ValueError(f"{text.name} has no token to predict: give a longer text")
    mean = totals["nats"] / totals["tokens"]
    return {
        **totals,
        "nats_per_token": mean,
        "perplexity": math.exp(mean),
        "bits_per_byte": None if start is None else totals["nats"] / math.log(2) / totals["bytes"],
        "documents": documents,
    }


def start_token(subject: Subject) -> int | None:
    """What stands before a document: BOS, else EOS, which stands there in packed training text."""
    tokenizer = subject.tokenizer
    bos = tokenizer.bos_token_id
    return tokenizer.eos_token_id if bos is None else bos


class _OffsetTokenizer(DocumentTokenizer):
    """Tells where in the text each token begins, too."""

    def tokenize(self, text: str, start: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A document's ids, the start token first, and where in the text the others begin."""
        encoding = self._encoder.encode(text, add_special_tokens=False)
        prefix = [] if start is None else [start]
        begins = [begin for begin, _ in encoding.offsets]
        return np.array(prefix + encoding.ids, dtype=np.int64), np.array(begins, dtype=np.int64)


def _score(
    scorer: Scorer,
    documents: list[NDArray[np.int64]],
    window: int,
    stride: int,
    progress: Progress,
) -> list[NDArray[np.float64]]:
    """The nats of every token of every document but its first."""
    nats = [np.full(max(0, len(ids) - 1), np.nan) for ids in documents]
    total = sum(1 for ids in documents for _ in windows(len(ids), window, stride))
    places = (
        (number, place)
        for number, ids in enumerate(documents)
        for place in windows(len(ids), window, stride)
    )
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    while chunk := list(islice(places, AT_ONCE)):
        passages = [Passage(documents[n][w.begin : w.end], w.predicted) for n, w in chunk]
        for (number, place), score in zip(chunk, scorer.score(passages, advance), strict=True):
            span = slice(place.end - 1 - place.predicted, place.end - 1)
            assert np.isnan(nats[number][span]).all()  # each is predicted once
            nats[number][span] = -score.log_probabilities
    return nats


def _document_sums(
    document: Document,
    begins: NDArray[np.int64],
    nats: NDArray[np.float64],
    skipped: int,
) -> dict[str, Any]:
    """Sums over a document and its pieces; a token belongs to the piece in which it begins."""
    if not np.isfinite(nats).all():
        raise ValueError("the model gives probabilities that are not numbers: its weights are bad")
    pieces = np.searchsorted(document.ends, begins[skipped:], side="right")
    # a token may begin where its text ends, if the tokenizer puts something of its own there
    pieces = np.minimum(pieces, len(document.ends) - 1)
    count = len(document.ends)
    tokens = np.bincount(pieces, minlength=count)
    sums = np.bincount(pieces, weights=nats, minlength=count)
    sizes = [
        len(document.text[begin:end].encode())
        for begin, end in zip((0, *document.ends), document.ends, strict=False)
    ]
    return {
        "hash": document.hash,
        "bytes": sum(sizes),
        "tokens": int(tokens.sum()),
        "nats": float(sums.sum()),
        "pieces": [list(row) for row in zip(sizes, tokens.tolist(), sums.tolist(), strict=True)],
    }
