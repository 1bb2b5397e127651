"""The file of results: made task by task, gone on with, and refused where it does not fit."""

import json

import pytest
from typer.testing import CliRunner

import dares
from dares import cli
from dares.evals.evaluate import Evaluation, Request, Watcher
from dares.evals.perplexity import measure
from dares.evals.results import Results
from dares.evals.subject import load_subject, model_label
from dares.evals.texts import read_text
from tests.data.texts import stories, write_jsonl
from tests.evals.models import save_model

runner = CliRunner()


class Heard(Watcher):
    def __init__(self):
        self.lines, self.steps = [], []

    def say(self, text):
        self.lines.append(text)

    def progress(self, name, done, total):
        self.steps.append((name, done, total))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture
def text(tmp_path):
    return write_jsonl(tmp_path / "val.jsonl", stories(6, seed=3))


def test_results_hold_what_they_follow_from(model, text, tmp_path):
    out = tmp_path / "new" / "results.json"
    heard = Heard()
    request = Request(texts=[text], window=16, stride=8, command="dares eval")
    results = Evaluation(request).of(str(model), out, heard)
    content = json.loads(out.read_text())
    assert content == results.content
    assert content["model"]["name"] == str(model)
    assert content["model"]["parameters"] == load_subject(str(model)).model.num_parameters()
    entry = content["tasks"]["val.jsonl"]
    assert entry["command"] == "dares eval"
    assert entry["versions"]["dares"] == dares.__version__
    assert set(entry["versions"]) == {"dares", "commit", "torch", "transformers", "lm-eval"}
    assert entry["settings"]["window"] == 16
    assert len(entry["documents"]) == 6
    assert sum(document["nats"] for document in entry["documents"]) == pytest.approx(entry["nats"])
    assert heard.steps[-1][1] == heard.steps[-1][2]


def test_what_is_done_is_not_done_again(model, text, tmp_path, monkeypatch):
    """Interrupted in the second text, it goes on with that one."""
    other = write_jsonl(tmp_path / "other.jsonl", stories(3, seed=4))
    out = tmp_path / "results.json"
    measured = []

    def stopped(subject, what, **rest):
        if what.name == "other.jsonl" and len(measured) == 1:
            raise KeyboardInterrupt
        measured.append(what.name)
        return measure(subject, what, **rest)

    monkeypatch.setattr("dares.evals.evaluate.measure", stopped)
    evaluation = Evaluation(Request(texts=[text, other]))
    with pytest.raises(KeyboardInterrupt):
        evaluation.of(str(model), out)
    first = Results.read(out).tasks
    assert list(first) == ["val.jsonl"]
    measured.append("interrupted")
    heard = Heard()
    results = evaluation.of(str(model), out, heard)
    assert measured == ["val.jsonl", "interrupted", "other.jsonl"]
    assert results.tasks["val.jsonl"] == first["val.jsonl"]
    assert f"val.jsonl: done before, in {out}" in heard.lines
    assert list(tmp_path.glob("*.part")) == []


def test_other_settings_are_refused_before_anything_is_run(model, text, tmp_path):
    out = tmp_path / "results.json"
    Evaluation(Request(texts=[text])).of(str(model), out)
    before = out.read_text()
    with pytest.raises(ValueError, match=r"holds val.jsonl .*\(limit was None, is 2; text was"):
        Evaluation(Request(texts=[text], limit=2)).of(str(model), out)
    with pytest.raises(ValueError, match="stride was 32, is 1; window was 64, is 16"):
        Evaluation(Request(texts=[text], window=16, stride=1)).of(str(model), out)
    write_jsonl(text, stories(6, seed=5))
    with pytest.raises(ValueError, match=r"text was \w+, is \w+"):
        Evaluation(Request(texts=[text])).of(str(model), out)
    assert out.read_text() == before


def test_another_model_is_refused(model, text, tmp_path):
    out = tmp_path / "results.json"
    Evaluation(Request(texts=[text])).of(str(model), out)
    other = save_model(tmp_path / "other", seed=1)
    with pytest.raises(ValueError, match=r"holds results of another model \(.*base\)"):
        Evaluation(Request(texts=[text])).of(str(other), out)


def test_fingerprint_follows_weights_config_and_tokenizer(model, tmp_path):
    base = load_subject(str(model))
    again = load_subject(str(model))
    assert base.fingerprint() == again.fingerprint()
    again.model.model.norm.weight.data[0] += 1e-6
    assert base.fingerprint() != again.fingerprint()
    routed = load_subject(str(save_model(tmp_path, scheme=dares.preset("delta"))))
    assert base.fingerprint() != routed.fingerprint()


def test_a_routed_model_in_a_run_has_the_same_perplexity(model, text, tmp_path):
    save_model(tmp_path / "run" / "model", scheme=dares.preset("delta_block", block=2))
    found = [
        Evaluation(Request(texts=[text])).of(str(each), tmp_path / f"{number}.json").tasks
        for number, each in enumerate((model, tmp_path / "run"))
    ]
    one, other = (tasks["val.jsonl"]["documents"] for tasks in found)
    assert one == other


def test_a_full_disk_is_told(model, text, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dares.evals.results.write_whole", full)
    with pytest.raises(ValueError, match="could not be written .No space left on device.: make"):
        Evaluation(Request(texts=[text])).of(str(model), tmp_path / "results.json")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not a file of results: it is no JSON"),
        ("[]", "is not a file of results: `dares eval --out` writes one"),
        ('{"model": {}, "tasks": {}, "format": 0}', "is in format 0, this version reads 1"),
    ],
)
def test_files_that_are_no_results(content, told, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=told):
        Results.read(path)


def test_labels():
    assert model_label("runs/mini/model") == "mini"
    assert model_label("runs/mini/") == "mini"
    assert model_label("Qwen/Qwen3-0.6B") == "Qwen3-0.6B"


# what a user may get wrong, by the command line


def refused(*words):
    result = runner.invoke(cli.app, ["eval", *map(str, words)])
    assert isinstance(result.exception, ValueError), result.output
    sentence = str(result.exception)
    assert "\n" not in sentence
    return sentence


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "results.json").exists()  # nothing half-written


def test_command(model, text, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["dares", "eval", "a model"])
    out = tmp_path / "r.json"
    result = runner.invoke(cli.app, ["eval", str(model), "--text", str(text), "--out", str(out)])
    assert result.exit_code == 0, result.output
    entry = Results.read(out).tasks["val.jsonl"]
    assert f"{entry['perplexity']:.4f}" in result.output
    assert f"{entry['bits_per_byte']:.5f}" in result.output
    assert entry["command"] == "dares eval 'a model'"


def test_text_that_is_none(model, here):
    (here / "empty.txt").write_text("")
    (here / "latin.txt").write_bytes("Gödel, über alles".encode("latin1"))
    (here / "wide.txt").write_bytes("plain words".encode("utf-16-le"))
    assert "empty.txt holds no text" in refused(model, "--text", "empty.txt")
    assert "latin.txt is not UTF-8 (2 bytes" in refused(model, "--text", "latin.txt")
    assert "wide.txt holds NUL characters" in refused(model, "--text", "wide.txt")
    assert "no such file or folder: no.txt" in refused(model, "--text", "no.txt")
    assert "unknown kind of file '.pdf'" in refused(model, "--text", _made(here / "a.pdf"))


def _made(path):
    path.write_text("x")
    return path


def test_byte_order_mark_is_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfabc")
    assert read_text(tmp_path / "a.txt").documents[0].text == "abc"


def test_models_that_are_none(model, text, here):
    (here / "folder").mkdir()
    assert "folder has no config.json" in refused("folder", "--text", text)
    assert "no such folder" in refused("./nowhere", "--text", text)
    assert "is a file: a model is a folder" in refused(text, "--text", text)
    bare = save_model(here / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    assert "bare has no tokenizer" in refused(bare, "--text", text)
    small = save_model(here / "small", vocabulary=200)
    assert "ids up to" in refused(small, "--text", text)


def test_figures_out_of_range(model, text, here):
    assert "(the model's positions), got 65" in refused(model, "--text", text, "--window", 65)
    assert "(the window), got 9" in refused(model, "--text", text, "--window", 8, "--stride", 9)
    assert "limit must be at least 1, got 0" in refused(model, "--text", text, "--limit", 0)
    assert "batch must be at least 1, got 0" in refused(model, "--text", text, "--batch", 0)
    assert "a number of rows or auto, got 'x'" in refused(model, "--text", text, "--batch", "x")
    assert "nothing to measure" in refused(model)
    assert "--local is for tasks" in refused(model, "--text", text, "--local", here)
    assert "is a folder: name a file" in refused(model, "--text", text, "--out", here)
    assert "two of the tasks and texts" in refused(model, "--text", text, "--text", text)
