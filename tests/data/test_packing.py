"""By counting: every token of every document is in one row, once; validation is fixed."""

from collections import Counter

import numpy as np
import pytest
from transformers import AutoTokenizer

from dares.data import packing, row_writer
from dares.data.prepare import prepare
from dares.data.split import place
from tests.data.texts import stories, word_tokenizer, write_jsonl

TEXTS = [*stories(400), "twice", "twice", "ends <|endoftext|> not here", "größer 🙂"]


def true_tokens(rows):
    """The tokens of a split in order, without the padding."""
    return np.concatenate([rows.row(n)[:length] for n, length in enumerate(rows.lengths)])


def documents_of(rows, data):
    tokenizer = AutoTokenizer.from_pretrained(data.tokenizer)
    ends = np.flatnonzero(true_tokens(rows) == data.eos_id) + 1
    pieces = np.split(true_tokens(rows), ends)
    assert len(pieces[-1]) == 0  # the last token is an end
    return [
        tokenizer.decode(piece[:-1].tolist(), clean_up_tokenization_spaces=False)
        for piece in pieces[:-1]
    ]


@pytest.mark.parametrize(
    ("row_tokens", "shard_rows"), [(2, 1 << 20), (7, 333), (64, 1), (64, 50), (100_000, 1)]
)
def test_no_token_is_lost_and_none_comes_twice(row_tokens, shard_rows, tmp_path, monkeypatch):
    monkeypatch.setattr(row_writer, "SHARD_BYTES", 2 * shard_rows * row_tokens)
    monkeypatch.setattr(packing, "BATCH_DOCUMENTS", 37)
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    options = {"vocabulary": 320, "validation": 0.1, "cache": tmp_path}
    data = prepare(source, row_tokens=row_tokens, **options)
    found = Counter()
    for rows in (data.train, data.validation):
        assert len(rows) == -(-rows.tokens // row_tokens)
        assert len(list(data.path.glob("train-*.bin"))) == -(-len(data.train) // shard_rows)
        assert rows.lengths.sum() == rows.tokens == len(true_tokens(rows))
        padding = rows.row(len(rows) - 1)[rows.lengths[-1] :]
        assert (padding == data.eos_id).all()
        found.update(documents_of(rows, data))
        assert len(documents_of(rows, data)) == rows.documents
    assert found == Counter(TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(data.tokenizer)
    ids = tokenizer(TEXTS, split_special_tokens=True)["input_ids"]
    assert data.train.tokens + data.validation.tokens == sum(map(len, ids)) + len(TEXTS)


def test_large_vocabularies_need_wider_tokens(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", ["w69999 layer " * 3, *stories(60)])
    for size, dtype in ((65_536, "<u2"), (65_537, "<u4"), (70_000, "<u4")):
        tokenizer = word_tokenizer(tmp_path / f"{size}.json", size)
        options = {"eos": "<end>", "row_tokens": 8, "validation": 0.1, "cache": tmp_path}
        data = prepare(source, tokenizer=tokenizer, **options)
        assert data.index["dtype"] == dtype
        assert data.vocabulary == size
    assert (true_tokens(data.train) == 69_999).sum() == 3


def test_validation_is_disjoint_and_stays_when_documents_are_added(tmp_path):
    options = {"vocabulary": 300, "row_tokens": 32, "validation": 0.2, "cache": tmp_path}
    few = prepare(write_jsonl(tmp_path / "few.jsonl", TEXTS), **options)
    many = prepare(
        write_jsonl(tmp_path / "many.jsonl", [*stories(300, seed=1), *TEXTS[::-1]]), **options
    )
    held_out = set(documents_of(few.validation, few))
    assert 40 < len(held_out) < 120  # a fifth of 403
    assert held_out.isdisjoint(documents_of(few.train, few))
    assert held_out < set(documents_of(many.validation, many))
    assert held_out.isdisjoint(documents_of(many.train, many))


def test_places_are_even_and_fixed():
    places = [place(text) for text in stories(4000)]
    counts = np.histogram(places, bins=10, range=(0, 1))[0]
    assert counts.min() > 320
    assert counts.max() < 480
    # written down: a change would move documents between training and validation
    assert place("a fixed text") == 0.7478442982007019


def test_both_splits_need_a_document(tmp_path):
    options = {"vocabulary": 300, "row_tokens": 8, "cache": tmp_path}
    texts = stories(5)
    source = write_jsonl(tmp_path / "a.jsonl", texts)
    with pytest.raises(ValueError, match="falls to validation .* share of 1e-06: set it to") as low:
        prepare(source, validation=1e-6, **options)
    least = float(str(low.value).split()[-3])
    assert sum(place(text) < least for text in texts) == 1
    assert prepare(source, validation=least, **options).validation.documents == 1

    with pytest.raises(ValueError, match="none of the 5 documents falls to training") as high:
        prepare(source, validation=1 - 1e-6, **options)
    most = float(str(high.value).split()[-3])
    assert prepare(source, validation=most, **options).train.documents == 1

    with pytest.raises(ValueError, match="all text is one document"):
        prepare(write_jsonl(tmp_path / "one.jsonl", ["one"]), **options)
    with pytest.raises(ValueError, match="the inputs hold no text"):
        prepare(write_jsonl(tmp_path / "none.jsonl", [""]), **options)
    left = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert len(left) == 2  # the two that were made, nothing of those that failed
    assert not any(".tmp-" in name for name in left)


def test_validation_text_of_its_own(tmp_path):
    """All of the inputs is trained on, and nothing else; the tokenizer knows none of the rest."""
    options = {"vocabulary": 300, "row_tokens": 32, "cache": tmp_path}
    train = write_jsonl(tmp_path / "train.jsonl", stories(60))
    other = ["\u2603" * 40, *stories(20, seed=1)]  # a snowman: three bytes where it is not known
    held_out = write_jsonl(tmp_path / "held-out.jsonl", other)
    data = prepare(train, validation_inputs=held_out, **options)
    assert documents_of(data.train, data) == stories(60)
    assert documents_of(data.validation, data) == other
    tokenizer = AutoTokenizer.from_pretrained(data.tokenizer)
    assert len(tokenizer(other[0]).input_ids) == 120
    alone = prepare(train, validation=1e-12, validation_inputs=[held_out], **options)
    assert alone.key == data.key  # the share makes no difference
    third = write_jsonl(tmp_path / "third.jsonl", stories(20, seed=2))
    assert data.key != prepare(train, validation_inputs=third, **options).key
    assert data.summary()["documents"] == 81
    two = prepare(train, validation_inputs=held_out, limit=2, **options)
    assert (two.train.documents, two.validation.documents) == (2, 2)


def test_validation_text_that_cannot_be(tmp_path):
    options = {"vocabulary": 300, "row_tokens": 8, "cache": tmp_path}
    some = write_jsonl(tmp_path / "some.jsonl", stories(5))
    empty = write_jsonl(tmp_path / "empty.jsonl", [""])
    with pytest.raises(ValueError, match="some.jsonl is among the inputs and the validation"):
        prepare(tmp_path, validation_inputs=some, **options)
    with pytest.raises(ValueError, match="the validation inputs hold no text"):
        prepare(some, validation_inputs=empty, **options)
    with pytest.raises(ValueError, match="the inputs hold no text"):
        prepare(empty, validation_inputs=some, **options)
