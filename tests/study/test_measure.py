"""What is measured at the end of a run."""

import json

import pytest

from dares.study.measure import losses, validation_batches
from dares.study.timing import measure_costs, read_costs
from dares.train.loop import prepare_data
from tests.study.small import begin, pretend, result


def write_metrics(folder, *lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_losses_of_a_run(tmp_path, workshop):
    write_metrics(
        tmp_path,
        {"step": 1, "loss": 6.0, "tokens_per_second": 10.0, "skipped": 0},
        {"step": 2, "validation_loss": 5.5},
        {"step": 2, "loss": 5.0, "tokens_per_second": 30.0, "skipped": 1},
        {"step": 3, "loss": 5.0, "tokens_per_second": 20.0, "skipped": 1},
        {"step": 4, "validation_loss": 5.25},
    )
    assert losses(tmp_path, workshop.recipe()) == {
        "lr": 1e-2,
        "validation_loss": 5.25,
        "curve": [[2, 5.5], [4, 5.25]],
        "tokens_per_second": 20.0,
        "skipped": 1,
    }


def test_a_run_that_diverged_is_an_error(tmp_path, workshop):
    write_metrics(tmp_path, {"step": 4, "validation_loss": float("nan")})
    with pytest.raises(ValueError, match="validation loss of nan: try a lower optim.lr"):
        losses(tmp_path, workshop.recipe())


def test_probed_rows_are_the_validation_split_without_its_padding(workshop):
    rows = prepare_data(workshop.recipe(), workshop.cache).validation
    batches = validation_batches(prepare_data(workshop.recipe(), workshop.cache))
    assert 2 <= len(rows) <= 16
    assert sum(len(batch["input_ids"]) for batch in batches) == len(rows)
    assert sum(int(batch["attention_mask"].sum()) for batch in batches) == rows.tokens


def test_costs_are_measured_once_and_relative_to_the_baseline(workshop):
    plan = begin(workshop, "timed", "delta", "attnres")
    for run in plan.runs[:2]:
        pretend(plan, run, result(5.0))
    plan.fail(plan.runs[2], "it does not fit")
    assert read_costs(plan) == {}
    found = measure_costs(plan, threads=1, cache=workshop.cache, rounds=2)
    assert list(found) == ["standard", "delta"]  # what did not run is not timed
    assert found["standard"] == {"step_time": 1.0, "activations": 1.0}
    assert found["delta"]["activations"] > 1.0
    assert found["delta"]["step_time"] > 0.5
    assert measure_costs(plan, threads=9, rounds=9) == found
    assert read_costs(plan) == found
    # mended by --retry, it is timed too, and the others are not again
    plan.retry()
    pretend(plan, plan.runs[2], result(5.0))
    more = measure_costs(plan, threads=1, cache=workshop.cache, rounds=2)
    assert more.items() >= found.items()
    assert more["attnres"]["activations"] > 1.0
    assert read_costs(plan) == more
    # how it is computed may change when a study goes on, and then these are not its times
    changed = begin(
        workshop, "timed", "delta", "attnres", changes=["run.gradient_checkpointing=true"]
    )
    assert read_costs(changed) == {}
