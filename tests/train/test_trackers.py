"""TensorBoard and Weights & Biases, where they are installed, get the lines of metrics.jsonl."""

import json
import signal

import pytest

from tests.train.runs import Signals, figures


def test_tensorboard(workshop):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    stopped = {"reporter": Signals(3, signal.SIGTERM)}
    run = workshop.train("board", "run.steps=6", track=["tensorboard"], **stopped).folder
    workshop.train("board", "run.steps=6", track=["tensorboard"], resume=True)
    events = accumulator.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    for name in ("loss", "gradient_norm", "largest_weight", "validation_loss"):
        written = [(event.step, event.value) for event in events.Scalars(name)]
        expected = figures(run, name)
        assert [step for step, _ in written] == [step for step, _ in expected]
        values = [value for _, value in expected]
        assert [value for _, value in written] == pytest.approx(values, rel=1e-6)
    # a list is a curve a site; site 0 has nothing to choose
    sites = [weights[2] for _, weights in figures(run, "site_largest_weight")]
    drawn = [event.value for event in events.Scalars("site_largest_weight/2")]
    assert drawn == pytest.approx(sites, rel=1e-6)
    assert "site_largest_weight/0" not in events.Tags()["scalars"]


def test_weights_and_biases(workshop, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    stopped = {"reporter": Signals(1, signal.SIGTERM)}
    run = workshop.train("biases", "run.steps=2", track=["wandb"], **stopped).folder
    workshop.train("biases", "run.steps=2", track=["wandb"], resume=True)
    identity = (run / "wandb-id.txt").read_text()
    files = [path for path in run.rglob("*.wandb") if path.name == f"run-{identity}.wandb"]
    assert len(files) == 2  # offline: a file a start, both of one run
    assert json.loads((run / "recipe.json").read_text())["name"] == "tiny"
