"""Whole reports of small models: what is written, and that it holds together."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest
import torch
from typer.testing import CliRunner

import dares
from dares import cli
from dares.evals.evaluate import Watcher
from dares.report.figures import pictures
from dares.report.inspection import Request, inspect
from dares.report.page import render
from dares.report.write import write_report
from tests.report.models import save_history, save_model, save_text
from tests.routing.models import EVERY

runner = CliRunner()
SMALL = {"tokens": 160, "window": 16}


class Kept(Watcher):
    """What was said, in order; a bar's name when it first moves."""

    def __init__(self):
        self.said, self.bars = [], {}

    def say(self, text):
        self.said.append(text)

    def progress(self, name, done, total):
        if name not in self.bars:
            self.said.append(name)
        self.bars[name] = (done, total)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return save_text(tmp_path_factory.mktemp("text") / "a.txt")


@pytest.fixture(scope="module")
def report(tmp_path_factory, text):
    """A report with everything in it, its folder and what was said."""
    folder, watcher = tmp_path_factory.mktemp("report"), Kept()
    save_history(save_model(folder, "delta_block"))
    request = Request([str(folder)], [text], **SMALL, probes="all", gradients=True, command="it")
    data = inspect(request, watcher)
    write_report(data, folder / "out")
    return folder / "out", watcher


def page_of(folder):
    return (folder / "report.html").read_text()


def words_of(page):
    """The page's text without styles and figures."""
    page = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"<[^>]+>", " ", page)


def numbers_in(value):
    if isinstance(value, dict | list):
        each = value.values() if isinstance(value, dict) else value
        return [number for part in each for number in numbers_in(part)]
    return [float(value)] if isinstance(value, int | float) else []


def test_all_files_are_there(report):
    folder, _ = report
    assert {path.name for path in folder.iterdir()} == {"routing.json", "report.html", "figures"}
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names == {
        *("sharpness", "heatmap", "token", "probes", "probes-by-site", "mass", "redundancy"),
        *("flow", "history"),
    }
    for name in names:
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()


def test_the_page_stands_alone(report):
    page = page_of(report[0])
    assert len(page.encode()) < 3e6
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert not re.search(r'(src|href)="(?!#|data:image)', page)
    assert "@import" not in page
    assert "<script" not in page
    assert "#24292f" not in page.split("</style>")[1]  # figures take the page's ink
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)
    assert {one or other for one, other in used} <= set(ids)
    assert page.count("<svg") == page.count('role="img" aria-label="') == 9


def test_every_tag_is_closed(report):
    void = {"meta", "br"}
    open_tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in void:
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Reader().feed(page_of(report[0]))
    assert open_tags == []


def test_every_number_of_the_page_is_in_the_file(report):
    folder, _ = report
    data = json.loads((folder / "routing.json").read_text())
    rules = " ".join(data["rules"].values())
    versions = " ".join(data["versions"].values())
    known = numbers_in(data)
    shown = set(re.findall(r"\d+\.\d+", words_of(page_of(folder))))
    shown -= set(re.findall(r"\d+\.\d+", rules + versions))
    assert len(shown) > 60
    for text in shown:
        digits = len(text.split(".")[1])
        assert any(f"{abs(number):.{digits}f}" == text for number in known), text


def test_the_file_says_what_made_it(report):
    data = json.loads((report[0] / "routing.json").read_text())
    assert data["versions"]["dares"] == dares.__version__
    assert data["command"] == "it"
    assert data["command"] in words_of(page_of(report[0]))


def test_the_page_is_made_of_the_file_alone(report, tmp_path, monkeypatch):
    folder, _ = report
    # and without matplotlib's global state: importing it would fail
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    write_report(json.loads((folder / "routing.json").read_text()), tmp_path / "again")
    assert page_of(tmp_path / "again") == page_of(folder)


def test_probes_state_their_cost_before_they_run(report):
    _, watcher = report
    cost = next(place for place, text in enumerate(watcher.said) if "forward passes" in text)
    bar = next(place for place, text in enumerate(watcher.said) if text.endswith(": probes"))
    assert cost < bar
    passes = int(re.search(r"([\d,]+) forward passes: about \d+ ", watcher.said[cost])[1])
    done, total = next(v for name, v in watcher.bars.items() if name.endswith("probes"))
    assert done == total == passes


def test_the_chosen_token(report):
    data = json.loads((report[0] / "routing.json").read_text())["models"][0]
    assert data["token"]["index"] == 15
    assert len(data["token"]["before"].split()) == 12
    assert data["token"]["text"] in words_of(page_of(report[0]))
    assert set(data["token"]["weights"]) == {str(site["index"]) for site in data["sites"]}


@pytest.mark.parametrize("scheme", ["cumulative", "ddl", "hyper", "dense", "standard"])
def test_every_scheme_gets_its_figures(scheme, tmp_path, text):
    watcher = Kept()
    data = inspect(Request([str(save_model(tmp_path, scheme))], [text], **SMALL), watcher)
    assert not any("fewer than" in text for text in watcher.said)
    write_report(data, tmp_path / "out")
    model = data["models"][0]
    names = {path.stem for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert {"flow", "redundancy"} <= names
    assert ("heatmap" in names) == (EVERY[scheme].scheme == "routed") == bool(model["probes"])
    wanted = {
        "ddl": {"gate-beta"},
        "hyper": {"read-weights", "stream-mixing", "write-weights"},
        "dense": {"layer-weights"},
    }
    assert wanted.get(EVERY[scheme].scheme, set()) <= names
    assert model["findings"]


def test_several_models_on_one_axis(tmp_path, text):
    names = ["delta", "standard", "attnres"]
    for name in names:
        (tmp_path / name).mkdir()
        save_model(tmp_path / name, name)
    folders = [str(tmp_path / name) for name in names]
    data = inspect(Request(folders, [text], **SMALL, probes="none"), Kept())
    write_report(data, tmp_path / "out")
    assert [model["name"] for model in data["models"]] == names
    assert (tmp_path / "out" / "figures" / "sharpness-of-all.png").is_file()
    assert (tmp_path / "out" / "figures" / "3-heatmap.png").is_file()
    assert "not probed" in page_of(tmp_path / "out")


def test_a_run_without_a_text_shows_its_history(tmp_path):
    save_history(tmp_path)
    data = inspect(Request([str(tmp_path)]), Kept())
    assert data["models"][0]["history"]["steps"] == [0, 10, 20]
    write_report(data, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == {
        "history.png",
        "history.svg",
    }


def test_older_runs_tell_the_mean_alone(tmp_path):
    line = {"step": 5, "largest_weight": 0.5, "routing_entropy": 0.4}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    history = inspect(Request([str(tmp_path)]), Kept())["models"][0]["history"]
    assert history == {"by_site": False, "steps": [5], "largest": [[0.5]], "entropy": [[0.4]]}


def test_text_of_the_user_is_escaped(report):
    data = json.loads((report[0] / "routing.json").read_text())
    data["models"][0]["name"] = "<script>alert(1)</script>"
    data["models"][0]["token"]["text"] = "<img src=x onerror=y>"
    data["command"] = "dares inspect '<b>'"
    shown = [picture for picture in pictures(data["models"][0]) if picture.name == "token"]
    page = render(data, [shown], [])
    assert "&lt;img src=x" in page
    assert "<script>" not in page
    assert "<img" not in page
    assert "<b>" not in page


def test_a_deep_model_still_fits_the_page(report):
    """36 layers of `delta`, every source probed at every site: 2,663 pairs."""
    data = json.loads((report[0] / "routing.json").read_text())
    model, sites, effects = data["models"][0], [], []
    scheme = dares.build_scheme(dares.preset("delta"), width=8, sites=72)
    for index in range(1, 72):
        sources = scheme.source_labels(index)
        weights = torch.rand(len(sources)).softmax(0).tolist()
        kind = ("attention", "mlp")[index % 2]
        place = {"index": index, "layer": index // 2, "depth": index / 2, "kind": kind}
        sites.append({**model["sites"][0], **place, "sources": sources, "weights": weights})
        for source, mass in zip(sources, weights, strict=True):
            numbers = {"difference": mass / 7, "low": 0.0, "high": mass / 3, "mass": mass}
            named = {"kind": "remove_at", "name": f"without {source} at layer {index // 2} {kind}"}
            effects.append({**named, **numbers, "site": index, "source": source})
        effects.append({**effects[-1], "kind": "drop_site", "mass": None})
    whole = [e for e in model["probes"]["effects"] if e["kind"] not in ("drop_site", "remove_at")]
    model["sites"], model["probes"]["effects"] = sites, whole + effects
    model["token"]["weights"] = {str(site["index"]): site["weights"] for site in sites}
    assert len(effects) > 2600
    assert len(render(data, [pictures(model)], []).encode()) < 3e6


# -- the command ---------------------------------------------------------------------------------


def test_the_command(tmp_path, text):
    folder = save_model(tmp_path, "delta")
    words = ["inspect", str(folder), "--text", str(text), "--out", str(tmp_path / "out")]
    words += ["--tokens", "200", "--window", "16", "--token", "3", "--batch", "2"]
    result = runner.invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert "forward passes: about" in result.output
    assert "On average a site gives" in result.output
    data = json.loads((tmp_path / "out" / "routing.json").read_text())
    model = data["models"][0]
    assert model["text"]["tokens"] == 208  # whole windows, at least as many as were asked for
    assert model["token"]["index"] == 3
    assert model["probes"]["level"] == "fast"
    again = runner.invoke(cli.app, [*words, "--probes", "none"])  # replaces an earlier report
    assert again.exit_code == 0, again.output
    (repeated,) = json.loads((tmp_path / "out" / "routing.json").read_text())["models"]
    assert repeated["probes"] is None
    for part in ("text", "sites", "token", "flow", "redundancy"):
        assert repeated[part] == model[part]


def test_a_text_that_ends_early_is_said(tmp_path):
    folder, watcher = save_model(tmp_path, "standard"), Kept()
    short = save_text(tmp_path / "short.txt", count=3)
    data = inspect(Request([str(folder)], [short], window=16), watcher)
    tokens = data["models"][0]["text"]["tokens"]
    assert tokens % 16 == 0
    assert f"the text has {tokens} tokens in whole windows, fewer than" in watcher.said[-1]


def test_at_least_ten_thousand_tokens_are_the_default():
    assert Request(["a"]).tokens >= 10_000


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("MODEL --text EMPTY", "holds no text: give a file that does"),
        ("MODEL --text SHORT", "has 3 tokens, fewer than one window of 64"),
        ("MODEL --text LATIN", "is not UTF-8 text: convert it"),
        ("MODEL --text NOWHERE.txt", "no such file or folder"),
        ("MODEL --text TEXT --window 65", "--window 65 is more than the 64 positions"),
        ("MODEL --text TEXT --window 1", "window must be at least 2 tokens, got 1"),
        ("MODEL --text TEXT --tokens 0", "--tokens must be at least 1, got 0"),
        ("MODEL --text TEXT --batch 0", "batch must be at least 1 window, got 0"),
        ("MODEL --text TEXT --token -1", "--token counts from 0, got -1"),
        ("MODEL --text TEXT --token 99999", "token 99999 is not in the text"),
        ("MODEL --text TEXT --probes quick", "unknown --probes 'quick'"),
        ("MODEL --text TEXT --out TEXT", "is a file: choose another --out"),
        ("MODEL --text TEXT --out MODEL", "which is no part of a report: choose a new folder"),
        ("MODEL", "nothing to draw without a text: give one with --text FILE"),
        ("MODEL MODEL --text TEXT", "a model was named twice"),
        ("EMPTYFOLDER --text TEXT", "no config.json"),
        ("STANDARD --text TEXT --probes fast", "has no routing weights .*leave it out"),
        ("STANDARD --text TEXT --token 3", "has no routing weights .*leave it out"),
        ("PLAIN --text TEXT", "LlamaForCausalLM has no residual scheme to look at"),
        ("NAN --text TEXT", "hold NaN: look for a diverged run or a damaged checkpoint"),
    ],
)
def test_bad_input_is_one_sentence(flags, message, places, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = [str(places.get(word, word)) for word in flags.split()]
    error = runner.invoke(cli.app, ["inspect", *words]).exception
    assert isinstance(error, ValueError)
    assert re.search(message, str(error)), error
    assert "\n" not in str(error)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


@pytest.fixture(scope="module")
def places(tmp_path_factory, text):
    from transformers import AutoModelForCausalLM

    from tests.models.families import tiny_model

    folder = tmp_path_factory.mktemp("places")
    found = {"TEXT": text}
    for name, content in (("EMPTY", b""), ("SHORT", b"layer sum"), ("LATIN", b"caf\xe9 " * 99)):
        found[name] = folder / f"{name}.txt"
        found[name].write_bytes(content)
    for name, scheme in (("MODEL", "delta"), ("STANDARD", "standard"), ("NAN", "delta")):
        found[name] = folder / name
        found[name].mkdir()
        save_model(found[name], scheme)
    found["PLAIN"] = folder / "PLAIN"
    found["PLAIN"].mkdir()
    save_model(found["PLAIN"], "standard")
    tiny_model("llama").save_pretrained(found["PLAIN"] / "model")
    broken = AutoModelForCausalLM.from_pretrained(found["NAN"] / "model")
    with torch.no_grad():
        broken.model.depth.query[0] = float("nan")
    broken.save_pretrained(found["NAN"] / "model")
    found["EMPTYFOLDER"] = folder / "nothing"
    found["EMPTYFOLDER"].mkdir()
    return found
