"""A user's mistake is one sentence and a code that is not zero."""

import sys

import pytest

from dares.cli import main


def refused(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["dares", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code != 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--parallel", "tp"], "error: unknown --parallel 'tp'; choose from: ddp, fsdp"),
        (
            ["--parallel", "ddp"],
            "error: --parallel ddp needs several processes: start it with torchrun "
            "--nproc-per-node N -m dares ...",
        ),
        (["--track", "tensorbord"], "error: unknown --track 'tensorbord'; did you mean"),
        (["--set", "optim.lrr=1"], "error: unknown setting 'optim.lrr'; did you mean 'optim.lr'?"),
        (["--set", "batch.rows=6"], "error: batch.rows must be a multiple of batch.micro_rows"),
    ],
)
def test_wrong_flags(workshop, capsys, monkeypatch, flags, said):
    arguments = workshop.arguments("wrong", flags=flags)
    assert refused(capsys, monkeypatch, *arguments).startswith(said)
    assert not (workshop.folder / "wrong").exists()


def test_unknown_recipe(capsys, monkeypatch):
    assert refused(capsys, monkeypatch, "train", "tinny").startswith(
        "error: unknown recipe 'tinny'; did you mean 'tiny'?"
    )


def test_no_recipe(capsys, monkeypatch, tmp_path):
    assert refused(capsys, monkeypatch, "train").startswith("error: name a recipe")
    nothing = refused(capsys, monkeypatch, "train", "--resume", "--out", str(tmp_path / "run"))
    assert nothing == f"error: there is no run in {tmp_path}/run to resume: check its name"


def test_a_folder_that_holds_a_run(workshop, undisturbed, capsys, monkeypatch):
    line = refused(capsys, monkeypatch, *workshop.arguments("undisturbed"))
    assert line == (
        f"error: {undisturbed} holds a run already: go on with --resume, or choose another folder"
    )


def test_a_run_of_another_recipe(undisturbed, capsys, monkeypatch):
    line = refused(capsys, monkeypatch, "train", "mini", "--resume", "--out", str(undisturbed))
    assert line == (
        f"error: the run in {undisturbed} is one of 'tiny', not of 'mini': "
        "name that one, or another folder"
    )


@pytest.mark.parametrize("command", [["plan", "mini"], ["prepare"]])
def test_a_file_in_a_folder_that_is_not_there(command, tmp_path, capsys, monkeypatch):
    path = tmp_path / "no" / "x.json"
    line = refused(capsys, monkeypatch, *command, "--json", str(path))
    assert line == f"error: '{path}' is in a folder that does not exist: create it first"


def test_a_path_with_a_comma(workshop, capsys, monkeypatch):
    arguments = workshop.arguments("comma")
    line = refused(capsys, monkeypatch, *arguments[:2], "notes, 2024.txt", *arguments[2:])
    assert line.startswith("error: no such file or folder: notes, 2024.txt")


def test_a_tracker_that_is_not_installed(workshop, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    arguments = workshop.arguments("tracked", flags=["--track", "wandb"])
    line = refused(capsys, monkeypatch, *arguments)
    assert line == "error: --track wandb needs a package: pip install wandb"
    assert not (workshop.folder / "tracked").exists()
