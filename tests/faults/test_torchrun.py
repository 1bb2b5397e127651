"""Under torchrun: a rank that dies is started again and the job goes on; rank 0 alone speaks."""

import pytest

from tests.train.runs import TORCHRUN, assert_same_run, assert_same_weights, python


def test_one_rank_killed(workshop, undisturbed):
    done = python(
        *TORCHRUN, "--max-restarts=1", "-m", "tests.faults.dying_rank", str(workshop.folder)
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() in [
        [
            "left-alone True 12 []",
            # the second time: this run is found finished, the other goes on from a checkpoint
            "left-alone True 0 ['going on from step-00000012']",
            f"killed True {12 - last} ['going on from step-{last:08d}']",
        ]
        for last in (4, 8)  # the later one may not have been written whole by then
    ]
    assert_same_run(workshop.folder / "killed", workshop.folder / "left-alone")
    assert_same_weights(workshop.folder / "killed", undisturbed, 1e-5)


def torchrun(workshop, name, *changes, flags=()):
    return python(*TORCHRUN, "-m", "dares", *workshop.arguments(name, *changes, flags=flags))


@pytest.mark.parametrize("mode", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_rank_0_alone_speaks(workshop, mode):
    done = torchrun(workshop, f"spoken-{mode}", "run.steps=3", flags=["--parallel", mode])
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == ""
    *steps, validation, end = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in steps] == ["step 1/3", "step 2/3", "step 3/3"]
    assert validation.startswith("step 3/3  validation loss")
    assert end.startswith("validation loss")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["run.steps=3"], "holds a run already: go on with --resume, or choose another folder"),
        (["batch.rows=9", "batch.micro_rows=3"], "batch.rows=9 cannot be shared by 2 ranks"),
    ],
)
def test_mistakes_under_torchrun(workshop, undisturbed, changes, said):
    done = torchrun(workshop, "undisturbed", *changes)
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(ours) == 2  # a sentence a rank, each in its own log
    assert all(said in line for line in ours)
    # the traceback is torchrun's own, of its agent
    assert done.stderr.count("Traceback") <= 1
