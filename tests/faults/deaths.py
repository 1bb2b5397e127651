"""Ways for a child to die of SIGKILL: each patches a function to kill the process inside it."""

import functools
import json
import os
import shutil
import signal

from torch.distributed.checkpoint import filesystem

from dares import durable
from dares.train import checkpoint, finish, metrics
from dares.train.engine import Engine


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def _dies(owner, name, *, when):
    """Call number `when` of owner.name is not lived through."""
    original, calls = getattr(owner, name), []

    @functools.wraps(original)
    def patched(*args, **kwargs):
        calls.append(name)
        if len(calls) == when:
            die()
        return original(*args, **kwargs)

    setattr(owner, name, patched)


def before_the_first_step():
    _dies(Engine, "step", when=1)


def in_a_step():
    _dies(Engine, "_clip", when=6)


def in_the_middle_of_a_checkpoints_data():
    """Some tensors of the second checkpoint are in its file, the others not."""
    original, written = filesystem._write_item, []

    def last(transforms, stream, *args, **kwargs):
        if "step-00000008" in str(stream.name):
            written.append(stream.name)
            if len(written) == 20:
                stream.flush()
                die()
        return original(transforms, stream, *args, **kwargs)

    filesystem._write_item = last


def before_a_checkpoints_manifest():
    _dies(checkpoint.Checkpoints, "_name", when=2)


def in_the_middle_of_a_manifest():
    original = checkpoint.write_whole

    def cut(path, text):
        if path.name == "manifest.json" and "step-00000008" in str(path):
            path.with_name(path.name + durable.PART).write_text(text[: len(text) // 2])
            die()
        original(path, text)

    checkpoint.write_whole = cut


def before_a_checkpoint_has_its_name():
    """The manifest is there, the folder is still called .part."""
    original = checkpoint.write_whole

    def last(path, text):
        original(path, text)
        if path.name == "manifest.json" and "step-00000008" in str(path):
            die()

    checkpoint.write_whole = last


def while_an_old_checkpoint_is_removed():
    original = shutil.rmtree

    def half(path, *args, **kwargs):
        if path.name == "step-00000004.part" and (path / "manifest.json").exists():
            (path / "__0_0.distcp").unlink()
            die()
        original(path, *args, **kwargs)

    shutil.rmtree = half


def in_the_middle_of_a_line_of_metrics():
    original = metrics.Metrics.write

    def cut(self, line):
        if line["step"] == 7:
            with self.path.open("a") as file:
                file.write(json.dumps(line)[:20])
            die()
        original(self, line)

    metrics.Metrics.write = cut


def while_the_model_is_written():
    _dies(shutil, "copytree", when=1)


def before_the_model_has_its_name():
    _dies(finish.os, "rename", when=4)


MOMENTS = (
    before_the_first_step,
    in_a_step,
    in_the_middle_of_a_checkpoints_data,
    before_a_checkpoints_manifest,
    in_the_middle_of_a_manifest,
    before_a_checkpoint_has_its_name,
    while_an_old_checkpoint_is_removed,
    in_the_middle_of_a_line_of_metrics,
    while_the_model_is_written,
    before_the_model_has_its_name,
)
