"""Two ranks give what one process gives, and checkpoints go from one way of sharing to another."""

import itertools
import shutil
import signal

import pytest
from transformers import AutoModelForCausalLM

import dares  # noqa: F401, registers the routed families
from dares.train.loop import prepare_data
from tests.train.runs import Signals, assert_same_weights, figures, validation_loss
from tests.train.two_ranks import run_on_two_ranks

SHORT = "run.steps=6"
MODES, SCHEMES, RECOMPUTED = ("ddp", "fsdp"), ("delta", "delta_block"), ("true", "false")
CASES = list(itertools.product(MODES, SCHEMES, RECOMPUTED))


@pytest.fixture(scope="module")
def printed(workshop):
    """All comparisons under one torchrun; what it printed."""
    jobs = [
        {
            "name": f"{mode}-{scheme}-{recomputed}",
            "mode": mode,
            "changes": [SHORT, f"depth={scheme}", f"run.gradient_checkpointing={recomputed}"],
        }
        for mode, scheme, recomputed in CASES
    ]
    # in bf16, with a layer's weights gathered in bf16 too, and stopped by a signal to one rank
    jobs.append({"name": "fsdp-bf16", "mode": "fsdp", "changes": [SHORT, "run.precision=bf16"]})
    jobs += [
        {"name": f"{mode}-stopped", "mode": mode, "changes": [SHORT], "stop": 3} for mode in MODES
    ]
    return run_on_two_ranks(workshop, jobs)


@pytest.fixture(scope="module")
def alone(workshop):
    """The same runs in one process."""
    return {
        scheme: workshop.train(f"alone-{scheme}", SHORT, f"depth={scheme}").folder
        for scheme in SCHEMES
    }


def assert_same_figures(run, other):
    for name in ("loss", "gradient_norm", "validation_loss", "largest_weight"):
        ours, theirs = figures(run, name), figures(other, name)
        assert [step for step, _ in ours] == [step for step, _ in theirs]
        values = [value for _, value in theirs]
        assert [value for _, value in ours] == pytest.approx(values, abs=1e-5), name


@pytest.mark.parametrize(("mode", "scheme", "recomputed"), CASES)
def test_as_in_one_process(workshop, printed, alone, mode, scheme, recomputed):
    run = workshop.folder / f"{mode}-{scheme}-{recomputed}"
    assert_same_weights(run, alone[scheme], 1e-5)
    assert_same_figures(run, alone[scheme])


def test_nothing_is_printed(printed):
    """No warning of ours, nor of what we call."""
    assert printed.strip() == ""


def test_a_padded_row_was_among_them(workshop, printed):
    """Its rank has fewer tokens than the other, and yet the mean is over all tokens."""
    rows = prepare_data(workshop.recipe(), workshop.cache).train
    assert len(rows) <= 6 * 8
    assert rows.lengths[-1] < rows.row_tokens


def test_a_sharded_model_with_tied_embeddings_is_exported_whole(workshop, printed):
    run = workshop.folder / "fsdp-delta-false"
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    rows = prepare_data(workshop.recipe(), workshop.cache).validation
    expected = figures(run, "validation_loss")[-1][1]
    assert validation_loss(model, rows) == pytest.approx(expected, abs=1e-5)


def test_bf16_layers_sharded(workshop, printed, alone):
    losses = [loss for _, loss in figures(workshop.folder / "fsdp-bf16", "loss")]
    full = [loss for _, loss in figures(alone["delta"], "loss")]
    assert losses != full
    assert losses == pytest.approx(full, abs=0.05)


def test_a_signal_to_one_rank_stops_all(workshop, printed):
    for mode in MODES:
        run = workshop.folder / f"{mode}-stopped"
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000003"]
        assert not (run / "model").exists()


def test_two_ranks_go_on_as_one(workshop, printed, alone):
    for mode in MODES:
        run = workshop.folder / f"{mode}-to-one"
        shutil.copytree(workshop.folder / f"{mode}-stopped", run)
        workshop.train(run.name, SHORT, resume=True)
        assert_same_weights(run, alone["delta"], 1e-5)
        assert_same_figures(run, alone["delta"])


def test_the_other_way_of_sharing_goes_on(workshop, printed, alone):
    """DDP to FSDP, FSDP to DDP, and one process to both."""
    stopped = workshop.folder / "alone-stopped"
    workshop.train(stopped.name, SHORT, reporter=Signals(3, signal.SIGTERM))
    jobs = []
    for mode, begun in itertools.product(MODES, ("ddp", "fsdp", "alone")):
        run = workshop.folder / f"{begun}-to-{mode}"
        shutil.copytree(workshop.folder / f"{begun}-stopped", run)
        jobs.append({"name": run.name, "mode": mode, "changes": [SHORT], "resume": True})
    run_on_two_ranks(workshop, jobs)
    for job in jobs:
        assert_same_weights(workshop.folder / job["name"], alone["delta"], 1e-5)
        assert_same_figures(workshop.folder / job["name"], alone["delta"])
