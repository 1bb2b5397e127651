"""A full disk: said in a sentence, and nothing good is lost."""

import errno
import resource
import shutil
import signal
from collections import namedtuple

import pytest

from dares import durable
from dares.train import metrics
from dares.train.manifest import find_damage
from tests.faults.children import Child, command
from tests.train.runs import Signals, assert_same_run

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def half(workshop):
    """Makes a run that stopped in the middle, with two whole checkpoints."""

    def make(name):
        result = workshop.train(name, reporter=Signals(6, signal.SIGTERM))
        return result.folder

    return make


def assert_old_checkpoints_are_whole(run):
    found = sorted((run / "checkpoints").glob("step-????????"))
    assert [path.name for path in found] == ["step-00000004", "step-00000006"]
    assert [find_damage(path) for path in found] == [None, None]


def test_too_little_room_is_seen_before_writing(workshop, undisturbed, half, monkeypatch):
    run = half("little-room")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 10**4, 10**4))
    with pytest.raises(
        ValueError,
        match=r"^a checkpoint needs 0.\d\d MB and .*/checkpoints has 0.01 MB left: make room and "
        "go on with --resume$",
    ):
        workshop.train("little-room", resume=True)
    assert_old_checkpoints_are_whole(run)
    monkeypatch.undo()
    assert_same_run(workshop.train("little-room", resume=True).folder, undisturbed)


def no_large_files():
    """The system refuses to let a file grow beyond this, as it would on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))


def test_a_write_that_fails_half_way(workshop, undisturbed, half):
    run = half("half-way")
    child = Child(
        workshop.folder,
        command,
        workshop.arguments("half-way", flags=["--resume"]),
        no_large_files,
    )
    code, output = child.end()
    assert code == 2, output
    assert "Traceback" not in output
    assert output.splitlines()[-1] == (
        "error: checkpoint step-00000008 could not be written (File too large); the checkpoints "
        "there are remain whole: make room and go on with --resume"
    )
    assert_old_checkpoints_are_whole(run)
    assert_same_run(workshop.train("half-way", resume=True).folder, undisturbed)


class FullFile:
    """A file on a full disk: it takes a little, then no more."""

    def __init__(self, file):
        self._file, self._room = file, 1000

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, content):
        self._room -= len(content)
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(content)


def test_no_space_left(workshop, undisturbed, half, monkeypatch):
    from torch.distributed.checkpoint import filesystem

    run = half("no-space")
    write_item = filesystem._write_item

    def write(transforms, stream, *arguments):
        return write_item(transforms, FullFile(stream), *arguments)

    monkeypatch.setattr(filesystem, "_write_item", write)
    with pytest.raises(ValueError, match=r"^checkpoint step-00000008 could not be written \(the "):
        workshop.train("no-space", resume=True)
    assert_old_checkpoints_are_whole(run)
    monkeypatch.undo()
    assert_same_run(workshop.train("no-space", resume=True).folder, undisturbed)


def test_no_space_for_metrics(workshop, undisturbed, half, monkeypatch):
    run = half("no-space-metrics")

    def no_sync(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(metrics.os, "fsync", no_sync)
        with pytest.raises(ValueError, match=r"metrics.jsonl could not be written \(the disk is f"):
            workshop.train("no-space-metrics", resume=True)
    assert_old_checkpoints_are_whole(run)
    assert_same_run(workshop.train("no-space-metrics", resume=True).folder, undisturbed)


def test_no_space_for_the_model_keeps_the_one_there_is(workshop, undisturbed):
    run = workshop.folder / "no-space-model"
    shutil.copytree(undisturbed, run)
    child = Child(
        workshop.folder,
        command,
        workshop.arguments(run.name, flags=["--resume"]),
        no_large_files,
    )
    code, output = child.end()
    assert code == 2, output
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith(f"error: {run}/model could not be written (")
    assert_same_run(run, undisturbed)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (RuntimeError("first line\nsecond"), "RuntimeError: first line"),
    ],
)
def test_why(error, said):
    assert durable.not_written("it", error).startswith(f"it could not be written ({said}): make")
