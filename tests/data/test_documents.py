"""Every kind of file gives its documents back, and a wrong input gives one clear sentence."""

import gzip
import json
import lzma
import random
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from dares.data import documents, readers
from dares.data.documents import Tally, find_corpus
from tests.data.texts import stories, write_jsonl

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}
STORIES = ["one\nline\n", "zwei Zeilen, größer\r\n\r\nund leer", "три 🙂\u2028", "four"]


def read(*inputs, **options):
    tally = Tally()
    corpus = find_corpus(inputs, **options)
    return list(corpus.documents(tally)), tally


def content(kind):
    """A file of this kind, and the documents in it."""
    if kind == ".jsonl":
        lines = [
            json.dumps({"text": s, "n": 1}, ensure_ascii=n % 2 == 0) for n, s in enumerate(STORIES)
        ]
        return "\n\n".join(lines).encode(), STORIES
    if kind == ".parquet":
        sink = pyarrow.BufferOutputStream()
        table = pyarrow.table({"n": range(4), "text": STORIES})
        pyarrow.parquet.write_table(table, sink, row_group_size=3)
        return sink.getvalue().to_pybytes(), STORIES
    return STORIES[1].encode(), [STORIES[1]]


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("kind", readers.READERS)
def test_every_kind_and_compression(kind, compression, tmp_path):
    plain, expected = content(kind)
    path = tmp_path / f"some.text{kind}{compression}"
    path.write_bytes(COMPRESS[compression](plain))
    found, tally = read(path)
    assert found == expected
    assert tally.documents == len(expected)
    assert tally.text_bytes == sum(len(text.encode()) for text in expected)
    assert tally.position == path.stat().st_size


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_joined_compressed_files_are_read_to_the_end(compression, tmp_path):
    path = tmp_path / f"a.txt{compression}"
    path.write_bytes(COMPRESS[compression](b"first ") + COMPRESS[compression](b"second"))
    assert read(path)[0] == ["first second"]


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".parquet"])
def test_damaged_compressed_files_are_named(kind, compression, tmp_path):
    whole = COMPRESS[compression](random.Random(0).randbytes(10_000))
    for name, damaged in (("short", whole[:-2000]), ("other", b"not compressed at all")):
        path = tmp_path / f"{name}{kind}{compression}"
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}{kind}{compression} is damaged or cut short"):
            read(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_large_text_is_cut_at_blank_lines_and_whole_when_joined(newline, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "WHOLE", 4000)
    monkeypatch.setattr(readers, "PIECE", 300)
    text = (newline * 2).join(stories(200)) + newline
    path = tmp_path / "large.txt"
    path.write_bytes(text.encode())
    pieces, _ = read(path)
    assert "".join(pieces) == text
    assert len(pieces) > 20
    assert all(piece.endswith(newline * 2) for piece in pieces[:-1])
    assert all(300 <= len(piece) < 1000 for piece in pieces[:-1])


@pytest.mark.parametrize("length", [3999, 4000, 4001, 8000, 12345])
@pytest.mark.parametrize("line", [None, 70])
def test_a_large_text_without_blank_lines_is_whole_too(length, line, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "WHOLE", 4000)
    monkeypatch.setattr(readers, "PIECE", 300)
    text = "".join("\n" if line and n % line == 0 else "é" for n in range(1, length + 1))
    path = tmp_path / "large.txt"
    path.write_text(text)
    pieces, _ = read(path)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 4000
    if line:
        assert all(piece.endswith("\n") for piece in pieces[:-1])


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 \xff\xfe and \xef\xbf\xbd")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "caf\xe9"}\n{"text": "\\ud800 alone"}\n')
    found, tally = read(tmp_path)
    assert found == ["caf\ufffd \ufffd\ufffd and \ufffd", "caf\ufffd", "\ufffd alone"]
    assert tally.replaced == 5


def test_a_byte_order_mark_is_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbftext")
    write_jsonl(tmp_path / "b.jsonl", ["more"])
    marked = b"\xef\xbb\xbf" + (tmp_path / "b.jsonl").read_bytes()
    (tmp_path / "b.jsonl").write_bytes(marked)
    assert read(tmp_path)[0] == ["text", "more"]


def test_folders_are_walked_in_order_and_other_kinds_counted(tmp_path):
    for name in ("b.txt", "a/z.md", "a/b/x.py", "c.TXT", "a/picture.png", "Makefile", "d.bin.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hidden.txt").write_text("hidden")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nowhere")
    found, tally = read(tmp_path)
    assert found == ["b.txt", "c.TXT", "a/z.md", "a/b/x.py"]
    assert tally.empty == 1
    assert find_corpus([tmp_path]).skipped_files == 4


def test_a_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_text("only")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    assert read(tmp_path / "a.txt", tmp_path, f"{tmp_path}/../{tmp_path.name}/a.txt")[0] == ["only"]


def test_limit_and_text_field(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["", *STORIES], field="body")
    (tmp_path / "b.jsonl").write_text("not reached")
    assert read(tmp_path, text_field="body", limit=3)[0] == STORIES[:3]
    with pytest.raises(ValueError, match="limit must be at least 1 document, got 0"):
        read(tmp_path, limit=0)


def test_the_default_is_the_standard_library():
    corpus = find_corpus([])
    names = {source.path.name for source in corpus.sources}
    assert {"argparse.py", "textwrap.py"} <= names
    assert all(source.kind == ".py" for source in corpus.sources)
    assert not any("site-packages" in source.path.parts for source in corpus.sources)
    assert corpus.size > 5_000_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": ', "b.jsonl line 2 is not JSON"),
        ("[1]", "b.jsonl line 2 is a list; a document is an object with a field 'text'"),
        (
            '{"txt": ""}',
            "line 2: unknown text field 'text'; did you mean 'txt'\\? choose from: txt",
        ),
        ('{"text": 3}', "line 2 has a int in 'text'; a document's text is a string"),
    ],
)
def test_a_bad_line_is_named(line, message, tmp_path):
    path = write_jsonl(tmp_path / "b.jsonl", ["good"])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=message):
        read(path)


def test_bad_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 no more than that")
    with pytest.raises(ValueError, match="a.parquet is not a readable parquet file"):
        read(path)
    pyarrow.parquet.write_table(pyarrow.table({"texts": ["a", None]}), path)
    with pytest.raises(ValueError, match="a.parquet: unknown text field 'text'; did you mean 'tex"):
        read(path)
    with pytest.raises(ValueError, match="row 2 has a NoneType in 'texts'"):
        read(path, text_field="texts")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./foo.txt", "no such file or folder: ./foo.txt"),
        ("corpus/train.jsonl.gz", "no such file or folder: corpus/train.jsonl.gz"),
        ("wikitext", "no such file or folder: wikitext .a Hugging Face dataset is named owner/"),
        ("/a/b", "no such file or folder"),
        (Path("./owner/name"), "no such file or folder: owner/name"),
    ],
)
def test_a_mistyped_path_is_not_looked_up(name, message, monkeypatch):
    monkeypatch.setattr(documents, "find_dataset", lambda *_: pytest.fail("looked up"))
    with pytest.raises(ValueError, match=message):
        find_corpus([name])


def test_unreadable_kinds(tmp_path):
    (tmp_path / "a.tx").touch()
    with pytest.raises(ValueError, match="unknown kind of file '.tx'; did you mean '.txt'"):
        find_corpus([tmp_path / "a.tx"])
    with pytest.raises(ValueError, match="no text in .*: 1 files, none of a kind that is read"):
        find_corpus([tmp_path])


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    corpus = find_corpus([path])
    corpus.check_unchanged()
    path.write_text("afterwards")
    with pytest.raises(ValueError, match="a.txt changed while it was read"):
        corpus.check_unchanged()


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"reading .parquet needs pyarrow.*dares\[data\]"):
        read(tmp_path)
