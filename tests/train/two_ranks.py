"""Several runs under one torchrun, since starting one takes seconds: JSON in, runs in folders out.

    [{"name": ..., "mode": "ddp" or "fsdp", "changes": [...], "resume": ..., "stop": ...}, ...]

`stop`: rank 1 alone is told to stop after that step. `recipe`, in place of `changes`: all of it.
"""

import dataclasses
import json
import signal
import sys
from pathlib import Path

from dares.train import engine
from dares.train.loop import train
from dares.train.parallel import joined
from dares.train.recipe import Recipe, build_model
from tests.train.runs import TORCHRUN, Signals, Workshop, python


def run_on_two_ranks(workshop, jobs):
    """Start torchrun on this file; returns what it printed."""
    done = python(*TORCHRUN, "-m", "tests.train.two_ranks", str(workshop.folder), json.dumps(jobs))
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def built_on_meta(recipe):
    """Of a model that is sharded, rank 1 never holds the whole."""
    model = build_model(recipe)
    assert all(tensor.is_meta for tensor in model.state_dict().values())
    return model


def main(folder, jobs):
    workshop = Workshop(Path(folder))
    with joined("ddp") as ranks:
        for job in jobs:
            if ranks.rank == 1:
                engine.build_model = built_on_meta if job["mode"] == "fsdp" else build_model
            told = job.get("stop") if ranks.rank == 1 else None
            whole = job.get("recipe")
            train(
                Recipe.from_dict(whole) if whole else workshop.recipe(*job["changes"]),
                workshop.folder / job["name"],
                ranks=dataclasses.replace(ranks, mode=job["mode"]),
                resume=job.get("resume", False),
                reporter=Signals(told, signal.SIGTERM),
                cache=workshop.cache,
            )


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
