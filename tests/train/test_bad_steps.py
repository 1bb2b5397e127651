"""A loss or gradient that is not finite: skipped, counted, and after some in a row the end."""

import io
import signal

import pytest
import torch
from rich.console import Console

from dares.data.loader import Loader
from dares.train.engine import Engine
from dares.train.loop import prepare_data
from dares.train.manifest import find_damage
from dares.train.metrics import FILE, read_metrics
from dares.train.parallel import joined
from dares.train.report import TerminalReporter
from tests.train.runs import Signals, assert_same_run


@pytest.fixture
def poison(monkeypatch):
    """Makes a gradient of the steps it is told not finite, or the loss."""
    whole_step, clip, now = Engine.step, Engine._clip, {}

    def tell(steps, value=float("nan"), *, loss=False):
        now.update(steps=steps, value=value, loss=loss)

    def step(self, loader, number):
        now["bad"] = number in now["steps"]
        hook = self.network.register_forward_hook(spoil_loss)
        try:
            return whole_step(self, loader, number)
        finally:
            hook.remove()

    def spoil_loss(network, inputs, output):
        if now["bad"] and now["loss"]:
            output.loss = output.loss * now["value"]
        return output

    def spoil_gradient(self):
        if now["bad"] and not now["loss"]:
            next(self.model.parameters()).grad[0, 0] = now["value"]
        return clip(self)

    monkeypatch.setattr(Engine, "step", step)
    monkeypatch.setattr(Engine, "_clip", spoil_gradient)
    return tell


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("loss", [False, True])
def test_a_bad_step_changes_nothing(workshop, poison, value, loss):
    recipe = workshop.recipe()
    loader = Loader(prepare_data(recipe, workshop.cache).train, rows_per_step=8, seed=0)
    poison({1}, value, loss=loss)
    with joined(None) as ranks:
        engine = Engine(recipe, ranks)
        assert engine.step(loader, 0).taken
        before = [tensor.clone() for tensor in everything(engine)]
        result = engine.step(loader, 1)
        assert not result.taken
        for was, now in zip(before, everything(engine), strict=True):
            torch.testing.assert_close(now, was, rtol=0, atol=0)
        assert engine.step(loader, 2).taken


def everything(engine):
    states = [tensor for state in engine.optimizer.state.values() for tensor in state.values()]
    return [*engine.model.parameters(), *states]


def test_skipped_steps_are_counted_and_said(workshop, poison):
    said = io.StringIO()
    poison({3, 7}, loss=True)
    run = workshop.train("skips", reporter=TerminalReporter(Console(file=said, width=300))).folder
    lines = [line for line in read_metrics(run / FILE) if "loss" in line]
    assert [line["step"] for line in lines if line["loss"] is None] == [4, 8]
    assert [line["skipped"] for line in lines] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    text = said.getvalue()
    assert "step 4: loss nan, gradient norm nan: skipped" in text
    assert "step 4/12  loss not finite" in text
    assert "skipped 2" in text.splitlines()[-2]


def test_after_some_in_a_row_the_run_ends(workshop, poison):
    poison({5, 6, 7})
    with pytest.raises(
        ValueError,
        match="^3 steps in a row, up to step 8, had a loss or gradient that is not finite; the "
        "last good checkpoint is kept: try a new run with a lower optim.lr, a longer optim.warmup "
        "or run.precision=fp32$",
    ):
        workshop.train("hopeless", "run.max_bad_steps=3")
    (kept,) = (workshop.folder / "hopeless" / "checkpoints").iterdir()
    assert kept.name == "step-00000004"
    assert find_damage(kept) is None


def test_a_run_that_ended_so_goes_on(workshop, poison, undisturbed):
    poison({5, 6, 7})
    with pytest.raises(ValueError, match="3 steps in a row"):
        workshop.train("healed", "run.max_bad_steps=3")
    poison(())
    assert_same_run(workshop.train("healed", resume=True).folder, undisturbed)


def test_the_first_steps_may_be_bad_and_saved(workshop, poison):
    """A checkpoint before the first good step: the optimizer has no state of its own yet."""
    poison({0, 1})
    whole = workshop.train("bad-start").folder
    stop = Signals(2, signal.SIGTERM)
    assert workshop.train("bad-start-saved", reporter=stop).step == 2
    assert_same_run(workshop.train("bad-start-saved", resume=True).folder, whole)
