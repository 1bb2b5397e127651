"""SIGTERM and Ctrl-C to `dares train`: the step is ended and kept, and the exit is clean."""

import signal

import pytest

from dares.train.metrics import FILE
from tests.faults.children import Child, command
from tests.train.runs import assert_same_run, read_metrics


@pytest.mark.parametrize(("number", "named"), [(signal.SIGTERM, []), (signal.SIGINT, ["tiny"])])
def test_a_signal_to_the_command(workshop, undisturbed, number, named):
    name = f"told-{number.name}"
    run = workshop.folder / name
    arguments = workshop.arguments(name)
    child = Child(workshop.folder, command, arguments)
    child.wait_for(run / FILE, '"step": 3,')
    child.signal(number)
    code, output = child.end()
    assert code == 0, output
    step = read_metrics(run / FILE)[-1]["step"]
    assert 3 <= step < 12
    said = f"stopped by {number.name} after step {step}; go on with --resume"
    assert output.splitlines()[-1] == said
    assert (run / "checkpoints" / f"step-{step:08d}").exists()

    # the folder knows its recipe, and the settings that it was begun with
    again = ["train", *named, "--resume", "--out", str(run), "--cache", str(workshop.cache)]
    code, output = Child(workshop.folder, command, again).end()
    assert code == 0, output
    lines = output.splitlines()
    assert lines[0] == f"going on from step-{step:08d}"
    assert lines[1].startswith(f"step {step + 1}/12  loss")
    assert lines[-1].endswith(f"the model is in {run}/model, its curves in {run}/curves.png")
    assert_same_run(run, undisturbed)
