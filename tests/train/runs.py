"""Runs of a second or two: a text of their own, a tiny model, and what to compare of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from dares.train.loop import train
from dares.train.metrics import FILE, read_metrics
from dares.train.overrides import apply_overrides
from dares.train.parallel import joined
from dares.train.recipes import recipe
from dares.train.report import Reporter
from tests.data.texts import stories, write_jsonl

ROOT = Path(__file__).parent.parent.parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
# "tiny" made smaller still: a dozen steps, of two parts on one rank and of one part on two
PROBE = (
    *("model.width=16", "model.layers=3", "model.heads=2", "model.kv_heads=1", "model.head_dim=8"),
    *("model.mlp=32", "model.vocabulary=320", "data.vocabulary=300", "data.row_tokens=32"),
    *("data.validation=0.15",),
    *("depth=delta", "optim.lr=1e-2", "optim.router_lr=2e-2", "optim.warmup=3"),
    *("batch.rows=8", "batch.micro_rows=4", "run.steps=12", "run.log_every=1"),
    *("run.eval_every=6", "run.eval_rows=99", "run.checkpoint_every=4"),
)


class Workshop:
    """A folder with a text, its prepared rows, and runs."""

    def __init__(self, folder):
        self.folder, self.cache = folder, folder / "cache"
        self.text = folder / "text.jsonl"
        if not self.text.exists():
            write_jsonl(self.text, stories(30, words=(20, 60)))

    def settings(self, *changes):
        """Changes of the recipe "tiny"; of two of one setting, the last counts."""
        return [*PROBE, f"data.inputs={self.text}", *changes]

    def recipe(self, *changes):
        return apply_overrides(recipe("tiny"), self.settings(*changes))

    def train(self, name, *changes, **options):
        """A run in this process, in a folder of that name."""
        with joined(None) as ranks:
            return train(
                self.recipe(*changes),
                self.folder / name,
                ranks=ranks,
                cache=self.cache,
                **options,
            )

    def arguments(self, name, *changes, flags=()):
        """The same run, said to `dares`."""
        said = ["train", "tiny", "--out", str(self.folder / name), "--cache", str(self.cache)]
        for change in self.settings(*changes):
            said += ["--set", change]
        return [*said, *flags]


class Signals(Reporter):
    """Sends this process signals once a step is done, and keeps what is said."""

    def __init__(self, after, *numbers):
        self.after, self.numbers, self.steps, self.said = after, numbers, 0, []

    def say(self, text):
        self.said.append(text)

    def step(self, line):
        self.steps += 1
        if self.steps == self.after:
            for number in self.numbers:
                signal.raise_signal(number)


def python(*arguments, timeout=200, **environment):
    """A child that runs Python; its output as text."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        # torchrun warns where the number of threads is not said
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def weights(run):
    """The trained model's tensors."""
    return load_file(run / "model" / "model.safetensors")


def figures(run, *names):
    """Those figures of every line that has them: [(step, ...), ...]."""
    return [
        (line["step"], *(line[name] for name in names))
        for line in read_metrics(run / FILE)
        if all(name in line for name in names)
    ]


def assert_same_weights(run, other, tolerance):
    """The two models agree; a tolerance of zero means to the last bit."""
    ours, theirs = weights(run), weights(other)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=tolerance, msg=name)


@torch.no_grad()
def validation_loss(model, rows):
    """The mean loss of every true token, without any of the code that trains."""
    total, count = 0.0, 0
    for index in range(len(rows)):
        ids = torch.from_numpy(rows.row(index)[: rows.lengths[index]])
        logits = model.eval()(ids[None]).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum").item()
        count += len(ids) - 1
    return total / count


def assert_same_run(run, other):
    """Bit for bit the same weights, and the same figures of the same steps, each once."""
    assert_same_weights(run, other, 0)
    for name in ("loss", "gradient_norm", "validation_loss"):
        assert figures(run, name) == figures(other, name)
