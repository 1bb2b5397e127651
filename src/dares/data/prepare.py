"""From inputs to prepared data, made once: the same inputs and options find it again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dares.data.cache import cache_folder, whole_folder
from dares.data.documents import Corpus, Tally, find_corpus
from dares.data.packing import pack
from dares.data.rows import FORMAT, INDEX, PackedData
from dares.data.split import place
from dares.data.tokenizer import (
    EOS,
    SAMPLE_BYTES,
    DocumentTokenizer,
    check_vocabulary,
    load_tokenizer,
    train_tokenizer,
)
from dares.durable import reason

# told: what is being done, bytes done, bytes in all (None: not known)
Progress = Callable[[str, int, "int | None"], None]


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Around reading inputs and writing rows: what the system refuses is told to the user."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise ValueError(
            f"the text could not be prepared: {reason(error)}{where}; see that the inputs can be "
            "read and that the cache has room and can be written"
        ) from error


@_in_a_sentence()
def prepare(
    inputs: str | Path | Sequence[str | Path] = (),
    *,
    tokenizer: str | Path | None = None,
    vocabulary: int = 4096,
    row_tokens: int = 2048,
    validation: float = 0.02,
    validation_inputs: str | Path | Sequence[str | Path] = (),
    cache: str | Path | None = None,
    limit: int | None = None,
    text_field: str = "text",
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
    eos: str | None = None,
    progress: Progress | None = None,
) -> PackedData:
    """Tokenize and pack the documents of the inputs, or find that it has been done.

    inputs: files, folders, Hugging Face datasets (`owner/name`); none: Python's standard library.
    tokenizer: a folder, a tokenizer.json or a name; none: a BPE of `vocabulary` ids is trained.
    validation: the share of documents held out, chosen by a hash of their text.
    validation_inputs: what is held out instead of a share; inputs are then all for training.
    limit: the first so many documents. config, split, revision: of Hugging Face datasets.
    eos: the token that ends a document, where the tokenizer does not say.
    """
    _check(vocabulary, row_tokens, validation)
    if eos is not None and tokenizer is None:
        raise ValueError(
            f"eos {eos!r} is for a tokenizer that you name; the trained one has {EOS!r} already"
        )
    tell: Progress = progress or _silent

    def find(names: str | Path | Sequence[str | Path]) -> Corpus:
        return find_corpus(
            [names] if isinstance(names, str | Path) else names,
            text_field=text_field,
            limit=limit,
            config=config,
            split=split,
            revision=revision,
        )

    corpus = find(inputs)
    held_out = find(validation_inputs) if validation_inputs else None
    if held_out is not None:
        _check_apart(corpus, held_out)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer, eos)
    described = loaded.fingerprint if loaded else f"trained {vocabulary} {SAMPLE_BYTES}"

    def hashing(done: int, total: int | None) -> None:
        tell("hashing", done, total)

    parts = corpus.fingerprint(hashing)
    parts += [f"format {FORMAT}", f"row {row_tokens}"]
    if held_out is None:
        parts += [f"validation {validation!r}", described]
    else:
        parts += [described, "validation:", *held_out.fingerprint(hashing)]
    key = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    folder = cache_folder(cache) / "data" / key
    if folder.exists():
        return PackedData.open(folder, reused=True)
    with whole_folder(folder) as temporary:
        start = time.perf_counter()
        share = validation if held_out is None else 0.0
        encoder = loaded or _trained(corpus, vocabulary, share, tell)
        corpora = [(each, Tally()) for each in (corpus, held_out) if each is not None]
        texts, *others = (_watched(each, tally, "packing", tell) for each, tally in corpora)
        index = pack(
            texts,
            encoder,
            temporary,
            row_tokens=row_tokens,
            validation=share,
            held_out=others[0] if others else None,
        )
        for each, _ in corpora:
            each.check_unchanged()
        encoder.save(temporary / "tokenizer")
        index |= {
            "format": FORMAT,
            "key": key,
            "vocabulary": encoder.vocabulary,
            "eos_id": encoder.eos_id,
            "text": _text_index(corpora),
            "seconds": time.perf_counter() - start,
        }
        (temporary / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    return PackedData.open(folder)


def _check(vocabulary: int, row_tokens: int, validation: float) -> None:
    check_vocabulary(vocabulary)
    if row_tokens < 2:
        raise ValueError(f"row_tokens must be at least 2 (one to predict), got {row_tokens}")
    if not 0 < validation < 1:
        raise ValueError(f"validation must be a share between 0 and 1, got {validation}")


def _check_apart(corpus: Corpus, held_out: Corpus) -> None:
    """An error if what is validated on is trained on."""
    trained_on = {source.identity for source in corpus.sources}
    for source in held_out.sources:
        if source.identity in trained_on:
            raise ValueError(
                f"{source.identity} is among the inputs and the validation inputs: name it in one "
                "of them"
            )


def _trained(
    corpus: Corpus, vocabulary: int, validation: float, tell: Progress
) -> DocumentTokenizer:
    # what is held out is held out from the tokenizer too
    texts = _watched(corpus, Tally(), "training the tokenizer", tell)
    return train_tokenizer((text for text in texts if place(text) >= validation), vocabulary)


def _watched(corpus: Corpus, tally: Tally, stage: str, tell: Progress) -> Iterator[str]:
    total = corpus.size
    for text in corpus.documents(tally):
        tell(stage, tally.position, total)
        yield text


def _text_index(corpora: Sequence[tuple[Corpus, Tally]]) -> dict[str, Any]:
    return {
        "documents": sum(tally.documents for _, tally in corpora),
        "bytes": sum(tally.text_bytes for _, tally in corpora),
        "empty": sum(tally.empty for _, tally in corpora),
        "replaced": sum(tally.replaced for _, tally in corpora),
        "skipped_files": sum(corpus.skipped_files for corpus, _ in corpora),
    }


def _silent(stage: str, done: int, total: int | None) -> None:
    pass
