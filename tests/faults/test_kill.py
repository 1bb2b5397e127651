"""Killed at any moment and resumed, a run ends bit for bit as one that was left alone."""

import random
import signal
import time

import pytest

from dares.train.manifest import find_damage
from dares.train.metrics import FILE
from tests.faults import deaths
from tests.faults.children import Child, train_in
from tests.train.runs import assert_same_run

FEW = (deaths.in_a_step, deaths.in_the_middle_of_a_checkpoints_data)


def checkpoints(run):
    return sorted((run / "checkpoints").glob("step-????????"))


def die_and_go_on(workshop, undisturbed, moment):
    name = moment.__name__
    child = Child(workshop.folder, train_in, workshop.folder, name, (), moment)
    code, output = child.end()
    assert code == -signal.SIGKILL, output
    run = workshop.folder / name
    # whatever has a checkpoint's name is whole
    assert [find_damage(path) for path in checkpoints(run)] == [None] * len(checkpoints(run))
    assert workshop.train(name, resume=run.exists()).finished
    assert_same_run(run, undisturbed)
    assert [path.name for path in (run / "checkpoints").iterdir()] != []
    assert not list(run.rglob("*.part"))
    return run


@pytest.mark.parametrize("moment", FEW)
def test_killed_at(workshop, undisturbed, moment):
    die_and_go_on(workshop, undisturbed, moment)


@pytest.mark.slow
@pytest.mark.parametrize("moment", sorted(set(deaths.MOMENTS) - set(FEW), key=str))
def test_killed_at_other_moments(workshop, undisturbed, moment):
    die_and_go_on(workshop, undisturbed, moment)


def kill_at_random(workshop, undisturbed, seed):
    """A child is killed some random time after a random step."""
    name, run = f"random-{seed}", workshop.folder / f"random-{seed}"
    child = Child(workshop.folder, train_in, workshop.folder, name, ("run.checkpoint_every=2",))
    moment = random.Random(seed)
    child.wait_for(run / FILE, f'"step": {moment.randint(1, 12)},')
    time.sleep(moment.uniform(0, 0.05))
    child.signal(signal.SIGKILL)
    code, output = child.end()
    assert code == -signal.SIGKILL, output
    assert [find_damage(path) for path in checkpoints(run)] == [None] * len(checkpoints(run))
    workshop.train(name, "run.checkpoint_every=2", resume=True)
    assert_same_run(run, undisturbed)


def test_killed_at_a_random_moment(workshop, undisturbed):
    kill_at_random(workshop, undisturbed, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 20))
def test_killed_at_random_moments(workshop, undisturbed, seed):
    kill_at_random(workshop, undisturbed, seed)
