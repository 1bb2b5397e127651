"""A run that stopped goes on as if it had not: to the last bit, and only if it is the same run."""

import json
import shutil
import signal

import pytest
import torch

from dares.train import interrupt
from dares.train.manifest import MANIFEST, PROGRESS, find_damage
from dares.train.metrics import FILE
from tests.data.texts import stories, write_jsonl
from tests.train.runs import Signals, Workshop, assert_same_run, assert_same_weights, figures


def stopped(workshop, name, *changes, after=6):
    """A run that was told to stop after that step."""
    result = workshop.train(name, *changes, reporter=Signals(after, signal.SIGTERM))
    assert (result.finished, result.step) == (False, after)
    return result.folder


def names(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([signal.SIGTERM], "SIGTERM"),
        ([signal.SIGINT], "SIGINT"),
        # torchrun hands a Ctrl-C on that its ranks have had from the terminal already
        ([signal.SIGINT, signal.SIGINT, signal.SIGTERM], "SIGINT"),
    ],
)
def test_a_signal_ends_the_step_and_keeps_it(workshop, undisturbed, numbers, said):
    name, reporter = f"signals-{len(numbers)}-{said}", Signals(5, *numbers)
    result = workshop.train(name, reporter=reporter)
    assert (result.finished, result.step, result.validation_loss) == (False, 5, None)
    assert reporter.said == [f"stopped by {said} after step 5; go on with --resume"]
    assert names(result.folder) == ["step-00000004", "step-00000005"]
    assert not (result.folder / "model").exists()

    again = workshop.train(name, resume=True)
    assert again.finished
    assert_same_run(again.folder, undisturbed)


def test_a_second_signal_later_stops_at_once(workshop, monkeypatch):
    monkeypatch.setattr(interrupt, "REPEATED", -1.0)
    # a shell's background job, as tests may be, ignores this signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            workshop.train("impatient", reporter=Signals(5, signal.SIGINT, signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)


def test_several_stops(workshop, undisturbed):
    stopped(workshop, "several", after=1)
    for after in (1, 4, 2):
        result = workshop.train("several", resume=True, reporter=Signals(after, signal.SIGTERM))
    assert result.step == 8
    assert_same_run(workshop.train("several", resume=True).folder, undisturbed)


def test_a_finished_run_is_left_as_it_is(workshop, undisturbed):
    run = workshop.folder / "finished"
    shutil.copytree(undisturbed, run)
    reporter = Signals(0)
    result = workshop.train("finished", resume=True, reporter=reporter)
    assert result.finished
    assert reporter.steps == 0
    assert_same_run(run, undisturbed)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty_manifest(path):
    path.write_text("{}")


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("__0_0.distcp", cut, "bytes instead of"),
        ("__0_0.distcp", flip, "__0_0.distcp has other contents than were written"),
        (PROGRESS, flip, "progress.json has other contents than were written"),
        (".metadata", lambda path: path.unlink(), ".metadata is missing"),
        (MANIFEST, lambda path: path.unlink(), "manifest.json is missing"),
        (MANIFEST, cut, None),
        (MANIFEST, empty_manifest, "manifest.json does not name progress.json"),
    ],
)
def test_damage_is_found(undisturbed, tmp_path, file, damage, said):
    copy = tmp_path / "step-00000012"
    shutil.copytree(undisturbed / "checkpoints" / copy.name, copy)
    assert find_damage(copy) is None
    damage(copy / file)
    if said is None:  # the last bytes of a manifest are a line's end: nothing is lost
        assert find_damage(copy) is None
    else:
        assert said in find_damage(copy)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_checkpoint_is_passed_over(workshop, undisturbed, keep):
    """Also where one is kept: the damaged one, the later, must not push the others out."""
    name, setting = f"damaged-{keep}", f"run.keep={keep}"
    run = stopped(workshop, name, "run.keep=2")
    flip(run / "checkpoints" / "step-00000006" / "__0_0.distcp")
    reporter = Signals(1, signal.SIGTERM)
    result = workshop.train(name, setting, resume=True, reporter=reporter)
    assert reporter.said[:2] == [
        "checkpoint step-00000006 is damaged (__0_0.distcp has other contents than were written): "
        "using the one before it",
        "going on from step-00000004",
    ]
    assert result.step == 5
    whole = ["step-00000004", "step-00000005"][-keep:]
    assert names(run) == [*whole, "step-00000006.damaged"]
    assert_same_run(workshop.train(name, setting, resume=True).folder, undisturbed)


def test_all_damaged_begins_anew(workshop, undisturbed):
    run = stopped(workshop, "all-damaged")
    for path in (run / "checkpoints").iterdir():
        cut(path / PROGRESS)
    reporter = Signals(0)
    workshop.train("all-damaged", resume=True, reporter=reporter)
    assert [said.partition("(")[0] for said in reporter.said[:2]] == [
        "checkpoint step-00000006 is damaged ",
        "checkpoint step-00000004 is damaged ",
    ]
    assert reporter.said[2] == f"no whole checkpoint in {run}: starting at step 0"
    assert_same_run(run, undisturbed)


def test_a_cut_line_of_metrics_is_written_again(workshop, undisturbed):
    run = stopped(workshop, "cut-line")
    with (run / FILE).open("a") as file:
        file.write('{"step": 7, "loss": 4.')
    assert_same_run(workshop.train("cut-line", resume=True).folder, undisturbed)


def test_what_is_saved_is_a_copy(workshop, undisturbed):
    """Weights change in place while a checkpoint is being written; it must not notice."""
    run = workshop.folder / "copied"
    every = "run.checkpoint_every=1"
    workshop.train("copied", every, "run.keep=99")
    for step in range(1, 12):  # each, whichever of them was slow to write
        other = workshop.folder / f"copied-{step}"
        (other / "checkpoints").mkdir(parents=True)
        shutil.copyfile(run / "recipe.json", other / "recipe.json")
        found = run / "checkpoints" / f"step-{step:08d}"
        assert find_damage(found) is None
        if step % 4 == 3:
            shutil.copytree(found, other / "checkpoints" / found.name)
            workshop.train(other.name, every, "run.keep=99", resume=True)
            assert_same_weights(other, undisturbed, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("optim.lr=2e-2", r"optim.lr was 0.01, is 0.02"),
        ("model.layers=4", r"model.layers was 3, is 4"),
        ("depth=delta_block", r"depth.block was None, is 2; depth.sources was sublayer, is block"),
        ("batch.rows=16", r"batch.rows was 8, is 16"),
        ("run.steps=13", r"run.steps was 12, is 13"),
        ("run.seed=1", r"run.seed was 0, is 1"),
        ("run.precision=bf16", r"run.precision was fp32, is bf16"),
    ],
)
def test_another_run_is_refused(workshop, undisturbed, change, said):
    with pytest.raises(ValueError, match=rf"was begun with other settings \({said}\): use those"):
        workshop.train("undisturbed", change, resume=True)


def test_how_it_is_watched_and_computed_may_change(workshop, undisturbed):
    stopped(workshop, "watched")
    changes = (
        *("run.log_every=2", "run.eval_every=3", "run.checkpoint_every=5", "run.keep=1"),
        *("run.gradient_checkpointing=true", "batch.micro_rows=8", "run.max_bad_steps=2"),
        "run.backend=grouped",
    )
    run = workshop.train("watched", *changes, resume=True).folder
    assert names(run) == ["step-00000012"]
    assert [step for step, _ in figures(run, "loss")] == [1, 2, 3, 4, 5, 6, 8, 10, 12]
    assert_same_weights(run, undisturbed, 1e-5)


def test_other_text_is_refused(tmp_path):
    workshop = Workshop(tmp_path)
    stopped(workshop, "other-text")
    write_jsonl(workshop.text, stories(30, seed=1, words=(20, 60)))
    with pytest.raises(ValueError, match="the data of .* is not what the run began with: put the"):
        workshop.train("other-text", resume=True)


def test_a_folder_belongs_to_one_run(workshop, undisturbed):
    with pytest.raises(ValueError, match="holds a run already: go on with --resume, or choose"):
        workshop.train("undisturbed")
    with pytest.raises(ValueError, match="there is no run in .*nowhere to resume: check its name"):
        workshop.train("nowhere", resume=True)
    assert not (workshop.folder / "nowhere").exists()


def test_a_run_that_cannot_begin_claims_nothing(workshop):
    with pytest.raises(ValueError, match="missing.txt"):
        workshop.train("no-text", f"data.inputs={workshop.folder}/missing.txt")
    assert not (workshop.folder / "no-text").exists()
    workshop.train("no-text", "run.steps=1")


def test_progress_says_where_it_is(undisturbed):
    path = undisturbed / "checkpoints" / "step-00000012" / PROGRESS
    saved = json.loads(path.read_text())
    assert saved["step"] == saved["progress"]["step"] == 12
    assert saved["recipe"]["name"] == "tiny"


def test_random_numbers_follow_from_the_step(workshop):
    """Dropout and the like: GPT-2 has it, and a run that stopped draws the same numbers."""
    gpt2 = ("model.family=gpt2", "model.kv_heads=2", "model.mlp=64")
    whole = workshop.train("dropout", *gpt2).folder
    torch.manual_seed(123)
    stopped(workshop, "dropout-stopped", *gpt2)
    torch.manual_seed(321)
    run = workshop.train("dropout-stopped", *gpt2, resume=True).folder
    assert_same_run(run, whole)
