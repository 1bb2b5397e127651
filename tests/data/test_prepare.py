"""Made once, whole or not at all, and found again."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from dares.data import cache as cache_module
from dares.data.prepare import prepare
from dares.data.rows import PackedData
from tests.data.texts import stories, word_tokenizer, write_jsonl

SMALL = {"vocabulary": 300, "row_tokens": 32, "validation": 0.1}
STALLING_CHILD = """
import sys, time
from dares.data import packing
from dares.data.prepare import prepare

packing.BATCH_DOCUMENTS = 8

def stall(stage, done, total):
    if stage == "packing" and done > total // 2:
        print("in the middle", flush=True)
        time.sleep(600)

prepare(sys.argv[1], vocabulary=300, row_tokens=32, validation=0.1, cache=sys.argv[2],
        progress=stall)
"""


@pytest.fixture
def source(tmp_path):
    # larger than a read of the file, so that there is a middle to be in
    return write_jsonl(tmp_path / "a.jsonl", stories(6000))


@pytest.fixture
def few(tmp_path):
    return write_jsonl(tmp_path / "few.jsonl", stories(120))


def names(cache):
    return sorted(path.name for path in (cache / "data").iterdir())


def contents(data):
    files = (path for path in data.path.rglob("*") if path.name != "index.json")
    return {path.name: path.read_bytes() for path in files if path.is_file()}


def test_a_second_run_reuses_the_first(few, tmp_path, monkeypatch):
    first = prepare(few, cache=tmp_path / "c", **SMALL)
    assert not first.reused
    before = {path: os.stat(path) for path in first.path.rglob("*")}
    monkeypatch.setattr("dares.data.prepare.pack", lambda *_, **__: pytest.fail("packed again"))
    again = prepare(few, cache=tmp_path / "c", **SMALL)
    assert again.reused
    assert again.path == first.path
    assert {path: os.stat(path).st_ino for path in first.path.rglob("*")} == {
        path: status.st_ino for path, status in before.items()
    }
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copy(few, moved / "other name.jsonl")
    assert prepare(moved, cache=tmp_path / "c", **SMALL).reused  # contents count, not names


def test_what_changes_the_data_changes_the_key(few, tmp_path):
    def key(inputs=few, **changes):
        return prepare(inputs, cache=tmp_path, **{**SMALL, **changes}).key

    words = word_tokenizer(tmp_path / "words.json")
    other = word_tokenizer(tmp_path / "other.json", size=21)
    longer = write_jsonl(tmp_path / "longer.jsonl", stories(121))
    keys = [
        key(),
        key(row_tokens=33),
        key(validation=0.2),
        key(vocabulary=301),
        key(limit=110),
        key(inputs=longer),
        key(tokenizer=words, eos="<end>"),
        key(tokenizer=words, eos="layer"),
        key(tokenizer=other, eos="<end>"),
    ]
    assert len(set(keys)) == len(keys)
    assert names(tmp_path) == sorted(keys)


def test_killed_in_the_middle_nothing_half_made_is_left(source, tmp_path):
    cache = tmp_path / "c"
    child = subprocess.Popen(
        [sys.executable, "-c", STALLING_CHILD, str(source), str(cache)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "in the middle\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    (left,) = names(cache)
    assert f"-{child.pid}-" in left
    assert (cache / "data" / left / "train-00000.bin").exists()  # it was in the middle
    with pytest.raises(ValueError, match="is not a whole folder of prepared data"):
        PackedData.open(cache / "data" / left)

    data = prepare(source, cache=cache, **SMALL)
    assert not data.reused
    assert names(cache) == [data.key]  # and what the dead process left is gone
    undisturbed = prepare(source, cache=tmp_path / "other", **SMALL)
    assert contents(data) == contents(undisturbed)


def test_an_error_in_the_middle_leaves_nothing(few, tmp_path):
    few.write_text(few.read_text() + "{broken\n")
    with pytest.raises(ValueError, match="line 121 is not JSON"):
        prepare(few, cache=tmp_path / "c", **SMALL)
    assert names(tmp_path / "c") == []


def test_two_at_once_both_end_well(few, tmp_path):
    inner = []

    def overtake(stage, done, total):
        if stage == "packing" and not inner:
            inner.append(None)  # the second run, from start to end, in the middle of the first
            inner[0] = prepare(few, cache=tmp_path / "c", **SMALL)

    outer = prepare(few, cache=tmp_path / "c", progress=overtake, **SMALL)
    assert outer.key == inner[0].key
    assert not inner[0].reused
    assert names(tmp_path / "c") == [outer.key]
    assert contents(outer) == contents(inner[0])


def test_left_overs_of_living_processes_stay(few, tmp_path):
    folder = tmp_path / "c" / "data"
    living = folder / f"key.tmp-{cache_module._here()}-{os.getpid()}-00000000"
    elsewhere = folder / "key.tmp-another_host-1-00000000"
    for path in (living, elsewhere):
        path.mkdir(parents=True)
    data = prepare(few, cache=tmp_path / "c", **SMALL)
    assert names(tmp_path / "c") == sorted([data.key, living.name, elsewhere.name])


def test_what_the_system_refuses_is_told_in_a_sentence(few, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"could not be prepared: Not a directory \(.*file"):
        prepare(few, cache=tmp_path / "file", **SMALL)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dares.data.prepare.pack", full)
    with pytest.raises(ValueError, match="could not be prepared: the disk is full; see that"):
        prepare(few, cache=tmp_path / "c", **SMALL)


def test_the_cache_folder(few, tmp_path, monkeypatch):
    monkeypatch.setenv("DARES_CACHE", str(tmp_path / "from the environment"))
    data = prepare(few, **SMALL)
    assert data.path.parent == tmp_path / "from the environment" / "data"
    monkeypatch.delenv("DARES_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_module.cache_folder() == tmp_path / ".cache" / "dares"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "index.json").unlink(), "No such file"),
        (lambda path: (path / "index.json").write_text("{}"), "'format'"),
        (lambda path: (path / "index.json").write_text('{"form'), "Unterminated"),
        (lambda path: (path / "train-00000.bin").unlink(), "train-00000.bin"),
        (lambda path: os.truncate(path / "train-00000.bin", 100), "has 100 bytes instead of"),
        (lambda path: shutil.rmtree(path / "tokenizer"), "tokenizer is missing"),
    ],
)
def test_a_damaged_folder_is_named(damage, message, few, tmp_path):
    data = prepare(few, cache=tmp_path / "c", **SMALL)
    damage(data.path)
    for again in (
        lambda: PackedData.open(data.path),
        lambda: prepare(few, cache=tmp_path / "c", **SMALL),
    ):
        with pytest.raises(ValueError, match=f"{data.key} is not a whole folder.*{message}.*rem"):
            again()


def test_another_format_is_refused(few, tmp_path):
    data = prepare(few, cache=tmp_path / "c", **SMALL)
    index = {**data.index, "format": 99}
    (data.path / "index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="format 99, this version reads 1"):
        PackedData.open(data.path)


def test_summary(few, tmp_path):
    summary = prepare(few, cache=tmp_path / "c", **SMALL).summary()
    texts = stories(120)
    assert summary["documents"] == 120
    assert summary["text_bytes"] == sum(map(len, texts))
    assert summary["tokens"] == summary["train_tokens"] + summary["validation_tokens"]
    assert summary["bytes_per_token"] == summary["text_bytes"] / summary["tokens"]
    assert summary["vocabulary"] <= 300
    assert json.loads(json.dumps(summary)) == summary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_tokens": 1}, "row_tokens must be at least 2 .*, got 1"),
        ({"validation": 0}, "validation must be a share between 0 and 1, got 0"),
        ({"validation": 1.0}, "validation must be a share between 0 and 1, got 1.0"),
        ({"vocabulary": 4}, "vocabulary must be at least 257"),
        ({"eos": "<end>"}, "eos '<end>' is for a tokenizer that you name"),
    ],
)
def test_wrong_options(changes, message, few, tmp_path):
    with pytest.raises(ValueError, match=message):
        prepare(few, cache=tmp_path, **{**SMALL, **changes})
