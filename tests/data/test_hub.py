"""A Hugging Face dataset, streamed by the real library from a folder in the hub's place."""

import datasets
import pytest

from dares.data.documents import Tally, find_corpus, pinned
from dares.data.hub import HubDataset
from dares.data.prepare import prepare
from tests.data.texts import stories, write_jsonl
from tests.train.runs import Workshop

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


@pytest.fixture
def newest(monkeypatch):
    """The Hub's newest commit; what it was asked for."""
    import huggingface_hub

    asked = []

    class Info:
        sha = COMMIT

    def dataset_info(_, name, *, revision):
        asked.append((name, revision))
        return Info

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    return asked


def test_the_newest_commit_is_looked_up(newest):
    (source,) = find_corpus(["some/stories"], revision="main").sources
    assert source == HubDataset("some/stories", None, "train", COMMIT)
    assert newest == [("some/stories", "main")]


def test_a_name_may_bring_its_revision(newest):
    (source,) = find_corpus(["some/stories@v2"], revision="main").sources
    assert source == HubDataset("some/stories", None, "train", COMMIT)
    assert newest == [("some/stories", "v2")]
    (source,) = find_corpus([f"some/stories@{COMMIT[::-1]}"]).sources
    assert source.commit == COMMIT[::-1]
    assert len(newest) == 1  # a commit needs no network


def test_pinned_inputs_keep_their_commits(newest, tmp_path):
    here = tmp_path / "a@b.txt"
    here.write_text("text")
    old = f"some/stories@{COMMIT[::-1]}"
    inputs = [str(here), "some/stories", "some/others"]
    first = pinned(inputs)
    assert first == (str(here), f"some/stories@{COMMIT}", f"some/others@{COMMIT}")
    assert pinned(first) == first
    assert len(newest) == 2
    assert pinned(inputs, [old, "some/others@abc"]) == (str(here), old, "some/others@abc")
    assert len(newest) == 2


def test_a_run_keeps_the_commit_that_it_began_with(hub, newest, monkeypatch, tmp_path):
    from dares.train.folder import read_recipe

    shop = Workshop(tmp_path)
    inputs = ["data.inputs=some/stories", "run.steps=2", "optim.warmup=1"]
    run = shop.train("run", *inputs).folder
    (kept,) = read_recipe(run).data.inputs
    assert kept == f"some/stories@{COMMIT}"
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", None)  # no network any more
    assert shop.train("run", *inputs, resume=True).finished
