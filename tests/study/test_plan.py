"""A study's folder: whose it is, what is left to do, and which rate was chosen."""

import errno
import json
from dataclasses import replace

import pytest

from dares import durable
from dares.study.plan import ERROR, Plan
from dares.study.study import TUNING_SEED
from dares.train.recipe import Recipe
from tests.study.small import begin, pretend, result, small_study

RATES = (1e-3, 3e-3, 1e-2)


def test_runs_in_order(workshop):
    plan = begin(workshop, "order", "delta", seeds=(0, 1), rates=RATES)
    names = [run.name for run in plan.open_runs()]
    assert names[:6] == [
        *(f"standard/rate-{rate:g}" for rate in RATES),
        *(f"delta/rate-{rate:g}" for rate in RATES),
    ]
    assert names[6:] == ["standard/seed-0", "delta/seed-0", "standard/seed-1", "delta/seed-1"]
    assert [plan.is_ready(run) for run in plan.open_runs()] == [True] * 6 + [False] * 4


def test_recipes_of_runs(workshop):
    plan = begin(workshop, "recipes", "delta", seeds=(0, 5), rates=RATES)
    quarter = Plan(plan.folder, replace(plan.study, tuning_share=0.25))
    assert quarter.recipe(quarter.tuning[0]).run.steps == 3
    short = plan.recipe(plan.tuning[0])
    whole = plan.study.variants[0].recipe
    assert (short.run.steps, short.run.seed, short.optim.lr) == (6, TUNING_SEED, 1e-3)
    assert short.optim.warmup == whole.optim.warmup // 2
    for run in plan.tuning[:3]:
        pretend(plan, run, result({1e-3: 5.0, 3e-3: 4.5, 1e-2: 4.9}[run.rate]))
    assert plan.is_ready(plan.runs[0])
    own = plan.recipe(plan.runs[2])
    assert (own.run.steps, own.run.seed, own.optim.lr) == (12, 5, 3e-3)
    assert not plan.is_ready(plan.runs[1])  # delta's rates have not been tried


def test_the_best_rate_wins_failed_ones_are_left_out_and_a_tie_goes_to_the_lower(workshop):
    plan = begin(workshop, "rates", "delta", rates=RATES)
    standard, delta = plan.study.variants
    pretend(plan, plan.tuning[0], result(5.0))
    pretend(plan, plan.tuning[1], result(5.0))
    assert plan.rate(standard) is None
    plan.fail(plan.tuning[2], "5 steps in a row were not finite")
    assert plan.rate(standard) == 1e-3
    assert plan.tried(standard) == {1e-3: 5.0, 3e-3: 5.0, 1e-2: None}
    for run in plan.tuning[3:]:
        plan.fail(run, "no")
    with pytest.raises(ValueError, match="every run that tried a rate for delta failed"):
        plan.rate(delta)


def test_failed_runs_are_tried_again_when_asked(workshop):
    plan = begin(workshop, "again", "delta", seeds=(0, 1), rates=RATES)
    for run in plan.tuning:
        plan.fail(run, "no") if run.rate == 1e-2 else pretend(plan, run, result(run.rate))
    plan.fail(plan.runs[0], "it broke\nTraceback ...")
    assert plan.error(plan.runs[0]) == "it broke"
    assert plan.runs[0] not in plan.open_runs()
    # standard has begun with the rate that it has: another could win now
    assert [run.name for run in plan.retry()] == ["delta/rate-0.01", "standard/seed-0"]
    assert plan.runs[0] in plan.open_runs()


def test_rates_that_all_failed_are_tried_again(workshop):
    plan = begin(workshop, "all-rates", rates=RATES)
    for run in (*plan.tuning, *plan.runs):
        plan.fail(run, "no network")
    assert plan.retry() == [*plan.tuning, *plan.runs]
    assert not plan.is_ready(plan.runs[0])


def test_a_study_has_one_text(workshop):
    study, folder = small_study(workshop, "delta"), workshop.folder / "one-text"
    assert Plan.begin(folder, study, "a").text == "a"
    assert Plan.read(folder).text == "a"
    assert Plan.begin(folder, replace(study, seeds=(0, 1)), "a").study.seeds == (0, 1)
    with pytest.raises(ValueError, match="one-text is not what it was begun with: put it back"):
        Plan.begin(folder, replace(study, seeds=(0, 1, 2)), "b")
    assert Plan.read(folder).study.seeds == (0, 1)
    assert Plan.begin(folder, replace(study, seeds=(0, 1))).text == "a"


def test_a_study_keeps_the_command_it_was_last_given(workshop):
    study, folder = small_study(workshop, "delta"), workshop.folder / "command"
    Plan.begin(folder, study, "a", "dares study --seeds 1")
    more = replace(study, seeds=(0, 1))
    assert Plan.begin(folder, more).command == "dares study --seeds 1"
    Plan.begin(folder, more, "a", "dares study --seeds 2")
    assert Plan.read(folder).command == "dares study --seeds 2"


def test_a_folder_belongs_to_its_study(workshop):
    plan = begin(workshop, "whose", "delta", seeds=(0, 1))
    same = small_study(workshop, "delta", seeds=(0, 1), changes=["run.log_every=3"])
    again = Plan.begin(plan.folder, same)  # how often it is looked at makes no other study
    assert again.study.variants[0].recipe.run.log_every == 3
    assert Plan.read(plan.folder).study == same
    for study, said in (
        (small_study(workshop, "delta", name="other"), "belongs to study 'small', not to 'other'"),
        (
            small_study(workshop, "delta", seeds=(0, 2)),
            r"other settings \(seeds were \(0, 1\), are \(0, 2\)\)",
        ),
        (replace(same, tuning_share=0.25), r"\(--tune-share was 0.5, is 0.25\)"),
        (small_study(workshop, seeds=(0, 1)), "its variants were standard, delta"),
        (
            small_study(workshop, "delta", seeds=(0, 1), changes=["optim.lr=0.5"]),
            "standard: optim.lr was 0.01, is 0.5; delta: optim.lr was 0.01, is 0.5",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            Plan.begin(plan.folder, study)
    assert Plan.read(plan.folder).study == same


def test_more_seeds_in_the_same_folder(workshop):
    plan = begin(workshop, "more", "delta", seeds=(0,))
    for run in plan.runs:
        pretend(plan, run, result(5.0))
    assert not plan.open_runs()
    more = Plan.begin(plan.folder, small_study(workshop, "delta", seeds=(0, 1)))
    assert [run.name for run in more.open_runs()] == ["standard/seed-1", "delta/seed-1"]
    assert Plan.read(plan.folder).study.seeds == (0, 1)


def test_other_folders(workshop, tmp_path):
    study = small_study(workshop)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="holds something else than a study: choose another --out"):
        Plan.begin(tmp_path, study)
    with pytest.raises(ValueError, match="something else than a study"):
        Plan.begin(tmp_path / "thesis.tex", study)
    with pytest.raises(ValueError, match="there is no study in .*nowhere"):
        Plan.read(tmp_path / "nowhere")
    for content in ("", "[]", '{"name": "thesis"}'):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(
            ValueError, match=r"study.json is not a study's \(.*\): put it back, or"
        ):
            Plan.read(tmp_path)


def test_a_result_of_another_run_is_not_taken(workshop):
    plan = begin(workshop, "foreign")
    run = plan.runs[0]
    pretend(plan, run, result(5.0))
    assert plan.result(run)["validation_loss"] == 5.0
    path = plan.place(run) / "recipe.json"
    changed = json.loads(path.read_text())
    changed["optim"]["weight_decay"] = 0.7
    Recipe.from_dict(changed)
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=r"holds another run \(optim.weight_decay was 0.7, is 0.1"):
        plan.result(run)


def no_space(_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_said_in_a_sentence(workshop, monkeypatch):
    plan = begin(workshop, "full")
    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "fsync", no_space)
        with pytest.raises(
            ValueError, match=r"result.json could not be written \(the disk is full"
        ):
            pretend(plan, plan.runs[0], result(5.0))
        with pytest.raises(ValueError, match=r"study.json could not be written \(the disk is full"):
            Plan.begin(plan.folder, small_study(workshop, changes=["run.log_every=3"]))
    assert not plan.is_done(plan.runs[0])
    assert not (plan.place(plan.runs[0]) / ERROR).exists()
    assert Plan.read(plan.folder).study == plan.study


def test_a_disk_that_is_full_at_the_beginning_can_be_cleared(workshop, monkeypatch):
    folder, study = workshop.folder / "full-at-once", small_study(workshop)
    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "fsync", no_space)
        with pytest.raises(ValueError, match=r"study.json could not be written \(the disk is full"):
            Plan.begin(folder, study)
    assert list(folder.iterdir())  # what was written of it
    assert Plan.begin(folder, study).study == study
