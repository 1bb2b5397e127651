"""Documents to rows of tokens on disk, train and validation apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from dares.data.row_writer import RowWriter, token_dtype
from dares.data.split import place
from dares.data.tokenizer import DocumentTokenizer

BATCH_CHARACTERS = 1 << 20  # of text in memory at once, unless one document is longer
BATCH_DOCUMENTS = 1024


def pack(
    texts: Iterable[str],
    tokenizer: DocumentTokenizer,
    folder: Path,
    *,
    row_tokens: int,
    validation: float,
    held_out: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Write every document, its tokens and an EOS, to the split it falls to.

    validation: the share of texts that is held out. held_out: documents for validation beside it.
    Rows are cut from the joined documents: no token is left out and none comes twice. The last row
    of a split is padded; how many of its tokens are true follows from the count in the index.
    """
    dtype = token_dtype(tokenizer.vocabulary)
    train, validated = (
        RowWriter(folder, name, row_tokens, dtype, padding=tokenizer.eos_id)
        for name in ("train", "validation")
    )
    lowest, highest = 1.0, 0.0
    batches = chain(
        ((batch, False) for batch in _batches(texts)),
        ((batch, True) for batch in _batches(held_out or ())),
    )
    try:
        for batch, named in batches:
            for text, ids in zip(batch, tokenizer.encode(batch), strict=True):
                at = place(text)
                lowest, highest = min(lowest, at), max(highest, at)
                (validated if named or at < validation else train).add(ids, tokenizer.eos_id)
            train.flush()
            validated.flush()
        splits = {"train": train.finish(), "validation": validated.finish()}
    finally:
        train.close()
        validated.close()
    if held_out is None:
        _check_both(train.documents, validated.documents, validation, lowest, highest)
    else:
        _check_named(train.documents, validated.documents)
    return {"dtype": dtype.str, "row_tokens": row_tokens, "splits": splits}


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _check_named(train: int, held_out: int) -> None:
    for documents, name in ((train, "inputs"), (held_out, "validation inputs")):
        if not documents:
            raise ValueError(f"the {name} hold no text: give some that do")


def _check_both(
    train: int, held_out: int, validation: float, lowest: float, highest: float
) -> None:
    documents = train + held_out
    if not documents:
        raise ValueError("the inputs hold no text: give some that do")
    if train and held_out:
        return
    if lowest == highest:
        raise ValueError(
            "all text is one document, which cannot be both training and validation: give more "
            "(a plain text file above 1 MiB is cut into several)"
        )
    if train:
        missing, remedy = "validation", f"set it to {_tenthousandths(lowest) + 1e-4:.4f} or more"
    else:
        missing, remedy = "training", f"set it to {_tenthousandths(highest):.4f} or less"
    raise ValueError(
        f"none of the {documents} documents falls to {missing} at a validation share of "
        f"{validation:g}: {remedy}"
    )


def _tenthousandths(share: float) -> float:
    return math.floor(share * 1e4) / 1e4
