"""Children that can be killed: forked from a process that has imported torch already, once."""

import multiprocessing
import os
import sys
import time
import traceback
from pathlib import Path

# what a run imports on its way, here once for all children
import accelerate  # noqa: F401
import matplotlib.backends.backend_agg  # noqa: F401
import torch
import torch._dynamo

import dares.models.qwen3  # noqa: F401
from dares import cli
from tests.train.runs import Workshop

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.faults.children"])


class Child:
    """A process that calls a function of this module, its output in a file."""

    def __init__(self, folder, function, *arguments):
        self.output = Path(folder) / f"output-{time.monotonic_ns()}.txt"
        self.output.touch()  # it may be killed before it writes anything
        self._process = FORKS.Process(
            target=_with_output, args=(self.output, function, *arguments), daemon=True
        )
        self._process.start()

    @property
    def pid(self):
        return self._process.pid

    def wait_for(self, path, text="", seconds=60):
        """Until the child has written that text."""
        end = time.monotonic() + seconds
        while not (path.exists() and text in path.read_text()):
            assert self._process.is_alive(), self.output.read_text()
            assert time.monotonic() < end, f"no {text!r} in {path}"
            time.sleep(0.002)

    def signal(self, number):
        os.kill(self._process.pid, number)

    def end(self, seconds=60):
        """Its exit code, minus the signal that killed it, and what it wrote."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, "the child does not end"
        return self._process.exitcode, self.output.read_text()


def _with_output(output, function, *arguments):
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    try:
        function(*arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def train_in(folder, name, changes=(), prepare=None, resume=False):
    """A run of the workshop in that folder; `prepare` is called before."""
    if prepare is not None:
        prepare()
    Workshop(Path(folder)).train(name, *changes, resume=resume)


def command(arguments, prepare=None):
    """`dares` with those arguments."""
    if prepare is not None:
        prepare()
    sys.argv = ["dares", *arguments]
    # made when the terminal was the parent's
    cli.console.file = sys.stdout
    cli.main()
