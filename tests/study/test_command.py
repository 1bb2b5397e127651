"""`dares study`, as a user meets it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from dares import cli
from dares.provenance import known_versions
from dares.study import launch
from dares.study.claims import DEATHS, Observer
from dares.study.plan import RESULT, Plan
from tests.faults.test_wrong_commands import refused
from tests.study.small import begin, leave_claim, pretend, result
from tests.train.runs import ROOT

runner = CliRunner()


def arguments(workshop, name, *flags, study="paper-table", changes=()):
    """A study of seconds, said to `dares`."""
    said = ["study", study, "--recipe", "tiny", "--cache", str(workshop.cache)]
    said += ["--out", str(workshop.folder / name)]
    for change in (*workshop.settings(*changes), "depth=standard"):
        said += ["--set", change]
    return [*said, *flags]


def dares(*words):
    return subprocess.run(
        [sys.executable, "-m", "dares", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_from_nothing_to_the_page_and_again(workshop, monkeypatch):
    flags = ["--variants", "standard,delta", "--seeds", "2", "--jobs", "2"]
    said = arguments(workshop, "whole", *flags, changes=["run.steps=4", "run.eval_every=2"])
    monkeypatch.setattr(sys, "argv", ["dares", *said])
    done = runner.invoke(cli.app, said, catch_exceptions=False)
    assert done.exit_code == 0
    folder = workshop.folder / "whole"
    for name in ("standard/seed-0", "delta/seed-0", "standard/seed-1", "delta/seed-1"):
        assert f"{name}: validation loss " in done.stdout
    assert "paper-table" in (folder / "study.html").read_text()
    data = json.loads((folder / "table.json").read_text())
    assert data["timed"]
    command, made = data["command"], data["made"]
    assert command.startswith("dares study paper-table")
    assert [(each["versions"], each["runs"]) for each in made] == [(known_versions(), 4)]
    assert [row["difference"] is None for row in data["variants"]] == [True, False]
    result = runner.invoke(cli.app, ["study", "status", str(folder)])
    assert result.exit_code == 0
    assert result.output.count("2/2") == 2
    results = sorted(folder.rglob(RESULT))
    before = [path.stat().st_mtime_ns for path in results]
    result = runner.invoke(cli.app, said, catch_exceptions=False)  # all is done already
    assert "where: " in result.output
    assert ": validation loss " not in result.output  # no run was made again
    result = runner.invoke(cli.app, ["study", "report", str(folder)])
    assert "where: " in result.output
    data = json.loads((folder / "table.json").read_text())
    assert (data["command"], data["made"]) == (command, made)  # not those of the report
    assert [path.stat().st_mtime_ns for path in results] == before
    assert len(results) == 4


def test_help_names_every_study():
    from dares.study.studies import STUDIES

    output = runner.invoke(cli.app, ["study", "--help"]).output
    for name in (*STUDIES, "worker", "status", "report"):
        assert name in output


@pytest.mark.parametrize(
    ("study", "flags", "said"),
    [
        ("paper-tabel", [], "error: unknown study 'paper-tabel'; did you mean 'paper-table'?"),
        ("controls", ["--variants", "skpi"], "error: unknown variant 'skpi'; did you mean 'skip'?"),
        ("final", ["--seeds", "0"], "error: --seeds must be at least 1, got 0"),
        (
            "init",
            ["--tokens", "500"],
            "error: the warm-up of 3 steps is not shorter than a run of 2: give more --tokens, or",
        ),
        ("init", ["--jobs", "0"], "error: --jobs must be at least 1, got 0"),
        ("init", ["--set", "optim.lrr=1"], "error: unknown setting 'optim.lrr'; did you mean"),
        ("init", ["--reuse", "nowhere"], "error: there is no study in "),
        ("mine.py:study", [], "error: there is no file mine.py with a study in it"),
    ],
)
def test_wrong_commands(workshop, capsys, monkeypatch, study, flags, said):
    line = refused(capsys, monkeypatch, *arguments(workshop, "wrong-study", *flags, study=study))
    assert line.startswith(said)
    assert not (workshop.folder / "wrong-study").exists()


def test_a_folder_of_another_study(workshop, capsys, monkeypatch):
    plan = begin(workshop, "taken")
    line = refused(capsys, monkeypatch, *arguments(workshop, "taken"))
    assert line == (
        f"error: {plan.folder} belongs to study 'small', not to 'paper-table': choose another --out"
    )
    assert Plan.read(plan.folder).study == plan.study


def test_folders_without_a_study(tmp_path, capsys, monkeypatch):
    for command in ("worker", "status", "report"):
        line = refused(capsys, monkeypatch, "study", command, str(tmp_path))
        assert line.startswith(f"error: there is no study in {tmp_path}: begin one with")


def test_a_failed_run_is_told_at_the_end(workshop, monkeypatch):
    plan = begin(workshop, "told", "delta")
    pretend(plan, plan.runs[0], result(5.0))
    plan.fail(plan.runs[1], "it broke")
    output = runner.invoke(cli.app, ["study", "report", str(plan.folder)]).output
    assert "1 runs failed; --retry tries them again" in output
    assert "delta/seed-0: it broke" in output


def test_without_step_times_there_is_still_a_table(workshop, monkeypatch):
    def too_large(*_, **__):
        raise RuntimeError("out of memory\nlong story")

    plan = begin(workshop, "untimed")
    pretend(plan, plan.runs[0], result(5.0))
    monkeypatch.setattr("dares.study.timing.measure_costs", too_large)
    output = runner.invoke(cli.app, ["study", "report", str(plan.folder), "--timing"]).output
    assert "step times could not be measured (out of memory): the tables are without" in output
    assert (plan.folder / "table.md").exists()


def test_step_times_wait_until_all_is_done(workshop, capsys, monkeypatch):
    plan = begin(workshop, "busy", "delta")
    pretend(plan, plan.runs[0], result(5.0))
    line = refused(capsys, monkeypatch, "study", "report", str(plan.folder), "--timing")
    assert line == (
        "error: 1 runs are not done, and they would disturb the timing: leave --timing out, or wait"
    )


def test_too_little_to_validate_on(workshop, tmp_path, capsys, monkeypatch):
    short = tmp_path / "short.txt"
    short.write_text("A few words.")
    changes = [f"data.validation_inputs={short}"]
    line = refused(capsys, monkeypatch, *arguments(workshop, "short", changes=changes))
    assert line == (
        "error: the text to validate on fills 1 row of 32 tokens, and a study needs 2: give more"
    )


def test_workers_are_stopped_when_nobody_watches_them(workshop, monkeypatch):
    started, start = [], subprocess.Popen

    def popen(_, **options):
        started.append(start(["sleep", "60"], **options))
        return started[-1]

    def watch():
        raise BrokenPipeError

    monkeypatch.setattr(launch.subprocess, "Popen", popen)
    with pytest.raises(BrokenPipeError):
        launch.run_workers(begin(workshop, "pipe"), 2, cache=None, reuse=(), watch=watch)
    assert [worker.wait(10) for worker in started] == [-signal.SIGTERM] * 2


def test_workers_that_all_end_are_told_with_their_last_words(workshop, monkeypatch):
    plan = begin(workshop, "ended", "delta")
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(
        ValueError,
        match=r"2 runs are not done, standard/seed-0 .* \(worker 0, code 1: it said nothing",
    ):
        launch.run_workers(plan, 1, cache=workshop.cache, reuse=(), watch=lambda: None)


def killed(plan, monkeypatch, *, working=True):
    """Workers that take the first run that is not deadly, and are killed; how many there were."""
    started, start = [], subprocess.Popen
    observer = Observer()

    def popen(_, **options):
        worker = start(["sh", "-c", "kill -9 $$"], **options)
        places = [plan.place(run) for run in plan.runs]
        places.sort(key=observer.is_deadly)
        if working:
            leave_claim(places[0], len(started), worker.pid)
        started.append(worker)
        return worker

    monkeypatch.setattr(launch.subprocess, "Popen", popen)
    monkeypatch.setattr(launch, "LOOK", 0.02)
    with pytest.raises(ValueError, match=r"2 runs are not done, standard/seed-0 .* code -9"):
        launch.run_workers(plan, 1, cache=None, reuse=(), watch=lambda: None)
    return len(started)


def test_a_worker_that_is_killed_is_replaced_while_there_is_hope(workshop, monkeypatch):
    plan = begin(workshop, "out-of-memory", "delta")
    assert killed(plan, monkeypatch) == 2 * DEATHS  # each of two runs had its chances


def test_a_worker_that_is_killed_before_it_has_a_run_is_not_replaced(workshop, monkeypatch):
    plan = begin(workshop, "illegal-instruction", "delta")
    assert killed(plan, monkeypatch, working=False) == 1


def test_a_place_for_logs_that_cannot_be_made(workshop):
    plan = begin(workshop, "no-logs")
    (plan.folder / "workers").write_text("a file")
    with pytest.raises(ValueError, match=r"workers/0.log could not be written \(File exists\)"):
        launch.run_workers(plan, 1, cache=None, reuse=(), watch=lambda: None)


@pytest.mark.parametrize(
    ("visible", "gpus", "expected"),
    [(None, 0, [None, None]), (None, 2, ["0", "1", "0"]), ("3,5", 2, ["3", "5", "3"])],
)
def test_each_worker_has_its_gpu_and_its_share_of_the_cores(monkeypatch, visible, gpus, expected):
    monkeypatch.setattr(launch.torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(launch, "cores", lambda: 7)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = [launch._environment(index, 3) for index in range(len(expected))]
    assert [each.get("CUDA_VISIBLE_DEVICES") for each in found] == expected
    assert {each["OMP_NUM_THREADS"] for each in found} == {"2"}
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert launch._environment(0, 3)["OMP_NUM_THREADS"] == "5"


@pytest.mark.slow
def test_two_processes_are_faster_than_one(workshop):
    """Eight runs; needs two quiet cores."""
    flags = ["--variants", "standard,delta", "--seeds", "4", "--no-timing"]
    changes = ["model.width=64", "model.head_dim=32", "run.steps=600", "run.eval_every=300"]
    changes += ["run.log_every=100", "run.checkpoint_every=1000"]
    seconds = {}
    for jobs in (1, 2):
        said = arguments(workshop, f"jobs-{jobs}", *flags, "--jobs", str(jobs), changes=changes)
        begun = time.perf_counter()
        done = dares(*said)
        seconds[jobs] = time.perf_counter() - begun
        assert done.returncode == 0, done.stderr
    assert seconds[2] < 0.65 * seconds[1], seconds
