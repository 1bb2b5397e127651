"""`dares demo`, shrunk until it takes seconds."""

import io

import pytest
import torch
from rich.console import Console

from dares import demo
from dares.train.loop import Result
from dares.train.metrics import read_metrics
from dares.train.overrides import apply_overrides
from dares.train.recipe import build_model
from dares.train.recipes import recipe
from tests.data.texts import stories, write_jsonl

SHRUNK = [
    "data.vocabulary=300",
    "data.row_tokens=32",
    "data.validation=0.1",
    "model.vocabulary=300",
    "model.width=16",
    "model.head_dim=8",
    "model.mlp=32",
    "model.layers=4",
    "batch.rows=2",
    "batch.micro_rows=2",
    "run.steps=6",
    "run.log_every=2",
    "run.eval_every=3",
]


def demo_of(text, folder, *, live=False):
    """A demo of seconds: what it returned and what it printed."""
    screen = Console(file=io.StringIO(), width=80, force_terminal=live)
    changes = [*SHRUNK, f"data.inputs={text}"]
    cache = folder.with_name("cache")
    outcomes = demo.run(screen, changes=changes, folder=folder, cache=cache, rounds=1)
    return outcomes, screen.file.getvalue()


def test_demo_compares_four_schemes(tmp_path):
    text, folder = write_jsonl(tmp_path / "a.jsonl", stories(300)), tmp_path / "demo"
    outcomes, said = demo_of(text, folder)
    assert [outcome.scheme for outcome in outcomes] == list(demo.SCHEMES)
    for outcome in outcomes:
        lines = read_metrics(folder / outcome.scheme / "metrics.jsonl")
        assert outcome.perplexity == lines[-1]["validation_perplexity"]
        routed = outcome.scheme != "standard"
        assert (outcome.largest_weight is not None) == routed
        assert (outcome.cost.saved > outcomes[0].cost.saved) == routed
        assert (folder / outcome.scheme / "model" / "model.safetensors").is_file()
        assert f"{outcome.scheme}: step 6/6  validation perplexity" in said
        assert f"{outcome.perplexity:.1f}" in said.split("activations")[1]
    assert outcomes[0].cost.step_time == 1
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "not the paper's result" in said
    assert "starting over" not in said

    (folder / "notes.txt").write_text("mine")
    again, said = demo_of(text, folder, live=True)
    assert "starting over" in said
    assert [o.perplexity for o in again] == [o.perplexity for o in outcomes]
    assert (folder / "notes.txt").read_text() == "mine"
    last_rows = said.split("step times")[-2]
    for name in demo.SCHEMES:
        assert name in last_rows


def test_demo_stopped_by_a_signal_says_so(tmp_path, monkeypatch):
    def stopped(recipe, folder, **_):
        return Result(folder, False, 1, None)

    monkeypatch.setattr(demo, "train", stopped)
    text = write_jsonl(tmp_path / "a.jsonl", stories(300))
    with pytest.raises(SystemExit, match="the next one starts over"):
        demo_of(text, tmp_path / "demo")


def test_demo_gives_all_schemes_the_same_start():
    starts = []
    for name in demo.SCHEMES:
        torch.manual_seed(0)
        model = build_model(apply_overrides(recipe(f"mini-{name}"), SHRUNK))
        starts.append({n: p for n, p in model.named_parameters() if ".depth." not in n})
    for start in starts[1:]:
        assert start.keys() == starts[0].keys()
        assert all(torch.equal(start[name], starts[0][name]) for name in start)
