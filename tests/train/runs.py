"""Runs of a second or two: a text of their own, a tiny model, and what to compare of them."""

import os
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file

from dares.train.loop import train
from dares.train.metrics import FILE, read_metrics
from dares.train.overrides import apply_overrides
from dares.train.parallel import joined
from dares.train.recipes import recipe
from tests.data.texts import stories, write_jsonl

ROOT = Path(__file__).parent.parent.parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
# "tiny" made smaller still: a dozen steps, of two parts on one rank and of one part on two
PROBE = (
    *("model.width=16", "model.layers=3", "model.heads=2", "model.kv_heads=1", "model.head_dim=8"),
    *("model.mlp=32", "model.vocabulary=320", "data.vocabulary=300", "data.row_tokens=32"),
    *("depth=delta", "optim.lr=1e-2", "optim.router_lr=2e-2", "optim.warmup=3"),
    *("batch.rows=8", "batch.micro_rows=4", "run.steps=12", "run.log_every=1"),
    *("run.eval_every=6", "run.eval_rows=6", "run.checkpoint_every=4"),
)


class Workshop:
    """A folder with a text, its prepared rows, and runs."""

    def __init__(self, folder):
        self.folder, self.cache = folder, folder / "cache"
        self.text = folder / "text.jsonl"
        if not self.text.exists():
            write_jsonl(self.text, stories(900, words=(20, 60)))

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

    def command(self, name, *changes, flags=()):
        """Arguments of Python for the same run as `dares train`."""
        arguments = ["-m", "dares", "train", "tiny", "--out", str(self.folder / name)]
        for change in self.settings(*changes):
            arguments += ["--set", change]
        return [*arguments, "--cache", str(self.cache), *flags]


def python(*arguments, timeout=200, **environment):
    """A child that runs Python; its output as text."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
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
