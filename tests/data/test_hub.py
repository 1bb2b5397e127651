"""A Hugging Face dataset, streamed by the real library from a folder in the hub's place."""

import datasets
import pytest

from dares.data.documents import Tally, find_corpus
from dares.data.hub import HubDataset
from dares.data.prepare import prepare
from tests.data.texts import stories, write_jsonl

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEXTS = stories(300)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """`some/stories` is a dataset of one config and two splits; other names are not there."""
    for split, texts in (("train", TEXTS), ("test", ["not asked for"])):
        (tmp_path / "hub").mkdir(exist_ok=True)
        write_jsonl(tmp_path / "hub" / f"{split}.jsonl", texts)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    load = datasets.load_dataset
    asked = []

    def load_here(name, config, *, revision, **options):
        asked.append((name, config, revision, options))
        folder = tmp_path / "hub" if name == "some/stories" else tmp_path / "nowhere"
        return load(str(folder), config, **options)

    monkeypatch.setattr(datasets, "load_dataset", load_here)
    return asked


def test_documents_are_streamed_in_order(hub):
    corpus = find_corpus(["some/stories"], revision=COMMIT, limit=7)
    tally = Tally()
    assert list(corpus.documents(tally)) == TEXTS[:7]
    assert hub == [("some/stories", None, COMMIT, {"split": "train", "streaming": True})]
    assert tally.position == sum(map(len, TEXTS[:7]))
    assert corpus.size is None


def test_prepare(hub, tmp_path):
    options = {"revision": COMMIT, "vocabulary": 300, "row_tokens": 16, "cache": tmp_path / "c"}
    data = prepare("some/stories", **options)
    assert data.train.documents + data.validation.documents == 300
    calls = len(hub)
    assert prepare("some/stories", **options).reused
    assert len(hub) == calls  # not even opened
    for change in ({"limit": 200}, {"revision": COMMIT[::-1]}, {"config": "default"}):
        again = prepare("some/stories", **{**options, **change})
        assert again.key != data.key


def test_the_field_is_checked(hub):
    corpus = find_corpus(["some/stories"], revision=COMMIT, text_field="body")
    with pytest.raises(ValueError, match="some/stories row 1: unknown text field 'body'"):
        list(corpus.documents(Tally()))


def test_a_dataset_that_cannot_be_reached():
    with pytest.raises(ValueError, match="'no/such' is no file or folder here, and no dataset"):
        find_corpus(["no/such"])


def test_a_dataset_that_is_not_there(hub):
    with pytest.raises(ValueError, match="cannot stream dataset 'no/such'"):
        list(find_corpus(["no/such"], revision=COMMIT).documents(Tally()))


def test_the_newest_commit_is_looked_up(monkeypatch):
    import huggingface_hub

    class Info:
        sha = COMMIT

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, revision: Info)
    (source,) = find_corpus(["some/stories"], revision="main").sources
    assert source == HubDataset("some/stories", None, "train", COMMIT)
