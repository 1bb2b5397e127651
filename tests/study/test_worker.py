"""Workers: the same runs as `dares train` makes, whatever happens to them on the way."""

import random
import signal
import time

import pytest

from dares.study import worker
from dares.study.claims import CLAIMS, DEATHS, Observer
from dares.study.plan import ERROR, RESULT, Plan
from dares.train.loop import train
from dares.train.metrics import FILE
from dares.train.parallel import joined
from tests.faults.children import Child
from tests.faults.test_disk import no_large_files
from tests.study.small import begin, leave_claim, steps_taken, work_in, work_on
from tests.train.runs import assert_same_run


@pytest.fixture(scope="module")
def alone(workshop):
    """The runs of the study below, each trained by itself."""
    plan = begin(workshop, "alone", "delta", seeds=(0, 1))
    with joined(None) as ranks:
        for run in plan.runs:
            train(plan.recipe(run), plan.place(run), ranks=ranks, cache=workshop.cache)
    return plan


def assert_same_study(plan, alone):
    assert not plan.open_runs()
    for run in plan.runs:
        assert plan.error(run) is None
        assert_same_run(plan.place(run), alone.place(run))


@pytest.fixture(scope="module")
def done(workshop):
    """The same study, done by one worker."""
    plan = begin(workshop, "done", "delta", seeds=(0, 1))
    said = []
    work_on(plan, workshop, said.append)
    return plan, said


def test_a_study_is_its_runs(done, alone):
    plan, said = done
    assert_same_study(plan, alone)
    assert [line.split(":")[0] for line in said] == [
        name for run in plan.runs for name in (run.name, run.name)
    ]
    for run in plan.runs:
        found = plan.result(run)
        assert found["validation_loss"] == found["curve"][-1][1]
        assert [step for step, _ in found["curve"]] == [6, 12]
        assert (plan.place(run) / "model").is_dir()
        assert not (plan.place(run) / "checkpoints").exists()
        if run.variant.name == "delta":
            assert len(found["sites"]) == 5  # three layers, and the first site has no choice
            assert set(found["probes"]) == {"drop_all", "uniform", "mean"}
            # delta's sources sum to the stream: without the term is with uniform weights
            assert found["probes"]["drop_all"] == pytest.approx(
                found["probes"]["uniform"], abs=1e-6
            )
        else:
            assert (found["sites"], found["probes"]) == ([], {})


def test_a_finished_run_is_never_repeated(done, workshop, monkeypatch):
    plan, _ = done
    monkeypatch.setattr(worker, "train", None)
    before = {path: path.stat().st_mtime_ns for path in plan.folder.rglob(RESULT)}
    said = []
    work_on(plan, workshop, said.append)
    assert said == []
    assert not any(plan.error(run) for run in plan.runs)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_runs_that_workers_die_with_come_last(workshop):
    plan = begin(workshop, "deadly", "delta")
    observer = Observer()
    for number in range(DEATHS):
        leave_claim(plan.place(plan.runs[0]), number, 2**22 + number)  # above the largest there is
    for expected in (plan.runs[1], plan.runs[0]):
        run, claim = worker._take(plan, plan.open_runs(), observer, 20.0)
        assert run == expected
        assert claim.path.parent == plan.place(run) / CLAIMS
    assert worker._take(plan, plan.open_runs(), observer, 20.0) is None


def test_a_failed_run_is_kept_and_does_not_stop_the_others(workshop, monkeypatch):
    plan = begin(workshop, "failing", "delta")

    def broken(recipe, folder, **options):
        if recipe.name == "standard-seed-0":
            raise RuntimeError("out of memory\nlong story")
        return train(recipe, folder, **options)

    said = []
    with monkeypatch.context() as patched:
        patched.setattr(worker, "train", broken)
        work_on(plan, workshop, said.append)
    standard, delta = plan.runs
    assert plan.error(standard) == "RuntimeError: out of memory"
    assert "Traceback" in (plan.place(standard) / ERROR).read_text()
    assert "standard/seed-0: failed: RuntimeError: out of memory" in said
    assert plan.is_done(delta)
    work_on(plan, workshop)
    assert not plan.is_done(standard)
    plan.retry()
    work_on(plan, workshop)
    assert plan.is_done(standard)


def test_rates_are_tried_first_and_the_best_is_taken(workshop):
    rates = (1e-5, 1e-2, 3e-2)
    plan = begin(workshop, "tuned", rates=rates)
    work_on(plan, workshop)
    (variant,) = plan.study.variants
    tried = plan.tried(variant)
    assert list(tried) == list(rates)
    assert plan.rate(variant) == min(tried, key=tried.get) != 1e-5
    assert plan.result(plan.runs[0])["lr"] == plan.rate(variant)
    assert not (plan.place(plan.tuning[0]) / "model").exists()


def test_runs_of_another_study_are_reused_where_they_are_the_same(done, workshop, alone):
    other, _ = done
    plan = begin(workshop, "reusing", "delta", "delta_block", seeds=(1,))
    said = []
    work_on(plan, workshop, said.append, reuse=[other.folder])
    taken = [line for line in said if "taken from" in line]
    assert [line.split(":")[0] for line in taken] == ["standard/seed-1", "delta/seed-1"]
    assert_same_run(plan.place(plan.runs[1]), alone.place(alone.runs[3]))
    assert plan.result(plan.runs[1]) == other.result(other.runs[3])


def test_a_worker_with_another_text_ends(workshop):
    plan = begin(workshop, "other-text", "delta")
    Plan.begin(plan.folder, plan.study, "the key of another text")
    with pytest.raises(ValueError, match="other-text is not what it was begun with: put it back"):
        work_on(plan, workshop)
    assert len(plan.open_runs()) == 2  # for a worker that has the right one


def test_a_signal_before_the_first_step_is_seen_by_the_run_and_by_the_worker(workshop, monkeypatch):
    plan = begin(workshop, "early-signal", "delta")
    said = []
    with monkeypatch.context() as patched:
        patched.setattr(worker, "adopt", lambda *_: signal.raise_signal(signal.SIGTERM))
        work_on(plan, workshop, said.append)
    assert said == [
        "standard/seed-0: begins",
        "stopped by SIGTERM: a worker on this folder goes on from the last checkpoint",
    ]
    (checkpoint,) = (plan.place(plan.runs[0]) / "checkpoints").glob("step-*")
    assert checkpoint.name == "step-00000001"


def start(workshop, plan):
    return Child(workshop.folder, work_in, plan.folder, workshop.cache, plan.folder / "steps.txt")


def test_sigterm_saves_and_another_goes_on(workshop, alone):
    plan = begin(workshop, "sigterm", "delta")
    child = start(workshop, plan)
    child.wait_for(plan.place(plan.runs[1]) / FILE, '"step": 5,')
    child.signal(signal.SIGTERM)
    code, output = child.end()
    assert code == 0, output
    assert "a worker on this folder goes on" in output
    work_on(plan, workshop)
    assert_same_study(plan, alone)


def test_a_full_disk_is_a_sentence_and_nothing_is_lost(workshop, alone):
    plan = begin(workshop, "full-disk", "delta")
    child = Child(workshop.folder, work_in, plan.folder, workshop.cache, None, no_large_files)
    code, output = child.end()
    assert code == 0, output
    for run in plan.runs:
        assert plan.error(run).startswith("checkpoint step-00000002 could not be written (")
        assert f"{run.name}: failed: checkpoint" in output
    plan.retry()
    work_on(plan, workshop)
    assert_same_study(plan, alone)


def newest_steps(plan):
    """The newest whole checkpoint of each open run, as (run's name, step)."""
    found = {}
    for run in plan.open_runs():
        steps = sorted((plan.place(run) / "checkpoints").glob("step-????????"))
        found[plan.recipe(run).name] = int(steps[-1].name[5:]) if steps else 0
    return found


def kill_at_random(workshop, name, alone, kills):
    """Two workers, one of them killed again and again; what they did is read off their steps."""
    plan = begin(workshop, name, "delta", seeds=(0, 1))
    log, chance = plan.folder / "steps.txt", random.Random(name)
    children = [start(workshop, plan) for _ in range(2)]
    resumes = []  # (steps noted when a worker died, its run, where the next must go on)
    for _ in range(kills):
        seen, wanted = len(steps_taken(log)), chance.randint(1, 4)
        end = time.monotonic() + 60
        while len(steps_taken(log)) < seen + wanted and plan.open_runs():
            assert time.monotonic() < end
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        victim = children.pop(chance.randrange(2))
        victim.signal(signal.SIGKILL)
        victim.end()
        before = steps_taken(log)
        own = [run for pid, run, _ in before if pid == victim.pid]
        if own:
            at = newest_steps(plan).get(own[-1])
            resumes.append((len(before), own[-1], at))
        children.append(start(workshop, plan))
    for child in children:
        code, output = child.end(120)
        assert code == 0, output
    assert_same_study(plan, alone)
    taken = steps_taken(log)
    for place, run, at in resumes:
        after = [step for _, name, step in taken[place:] if name == run]
        # the survivor may have taken the run over before we looked
        assert not after or at is None or after[0] >= at
    assert_one_at_a_time(taken)
    return taken


def assert_one_at_a_time(taken):
    """Once another process has a run, the one before never takes a step of it again."""
    for run in {run for _, run, _ in taken}:
        owners = [pid for pid, name, _ in taken if name == run]
        changes = [pid for place, pid in enumerate(owners) if not place or owners[place - 1] != pid]
        assert len(changes) == len(set(changes)), run


def assert_little_was_repeated(taken, kills, every=2):
    """A death costs the steps since the last checkpoint, or since the one before if that was still
    being written, and the step that was under way.
    """
    assert len(taken) <= 4 * 12 + kills * (2 * every + 1)


def test_killed_at_random_moments(workshop, alone):
    taken = kill_at_random(workshop, "killed-2", alone, kills=2)
    assert_little_was_repeated(taken, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["killed-a", "killed-b", "killed-c"])
def test_killed_ten_times(workshop, alone, name):
    taken = kill_at_random(workshop, name, alone, kills=10)
    assert_little_was_repeated(taken, kills=10)


def test_two_workers_share_the_runs(workshop, alone):
    plan = begin(workshop, "shared", "delta", seeds=(0, 1))
    children = [start(workshop, plan) for _ in range(2)]
    for child in children:
        code, output = child.end(120)
        assert code == 0, output
    assert_same_study(plan, alone)
    taken = steps_taken(plan.folder / "steps.txt")
    assert len(taken) == 4 * 12  # each step once
    assert len({pid for pid, _, _ in taken}) == 2
    assert_one_at_a_time(taken)
