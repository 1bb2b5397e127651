"""Studies of seconds: a text of their own, tiny models, and workers that can be killed."""

import json
from dataclasses import replace
from pathlib import Path

from dares.presets import preset
from dares.processes import place
from dares.study.claims import CLAIMS
from dares.study.plan import Plan
from dares.study.study import Study, Variant
from dares.study.worker import work
from dares.train.engine import Engine

MADE = {"versions": {"dares": "0.1.0", "commit": "abc1234"}, "machine": "a CPU, 2 cores"}
QUICK = {"beat": 0.2, "stale": 30.0, "poll": 0.05}


def small_study(workshop, *names, changes=(), name="small", seeds=(0,), rates=()):
    """Variants under presets of those names; standard is always among them."""
    base = workshop.recipe("run.checkpoint_every=2", *changes)
    variants = [
        Variant(
            each, replace(base, depth=preset(each, **({"block": 2} if "block" in each else {})))
        )
        for each in ("standard", *names)
    ]
    return Study(name, "a study of seconds", tuple(variants), seeds, rates)


def begin(workshop, folder, *names, **options):
    """The same in a folder."""
    return Plan.begin(workshop.folder / folder, small_study(workshop, *names, **options))


def work_on(plan, workshop, say=lambda line: None, **options):
    """A worker in this process."""
    work(plan.folder, cache=workshop.cache, say=say, **{**QUICK, **options})


def work_in(folder, cache, log=None, prepare=None):
    """A worker in a child; every step that it takes is noted in a file that only grows.

    `prepare` is called before.
    """
    if prepare is not None:
        prepare()
    if log is not None:
        step = Engine.step

        def noted(self, loader, number):
            import os

            with Path(log).open("a") as file:
                file.write(f"{os.getpid()} {self.recipe.name} {number}\n")
            return step(self, loader, number)

        Engine.step = noted
    work(Path(folder), cache=cache, **QUICK)


def steps_taken(log):
    """[(pid, run, step), ...] in the order in which they were taken."""
    lines = Path(log).read_text().splitlines() if Path(log).exists() else []
    return [(int(pid), run, int(step)) for pid, run, step in map(str.split, lines)]


def result(loss, *, curve=None, sites=(), probes=None, lr=1e-2, data="x"):
    """What a worker writes at the end of a run, made up."""
    return {
        "lr": lr,
        "validation_loss": loss,
        "curve": curve or [[6, loss + 0.2], [12, loss]],
        "tokens_per_second": 100.0,
        "skipped": 0,
        "data": data,
        "made": MADE,
        "parameters": 1000,
        "scheme_parameters": 10,
        "sites": list(sites),
        "probes": probes or {},
    }


def leave_claim(run, number, pid):
    """A claim on a run's folder by a process of this machine, not given back."""
    (run / CLAIMS).mkdir(parents=True, exist_ok=True)
    claim = {"place": place(), "pid": pid, "free": False}
    (run / CLAIMS / f"{number:04d}").write_text(json.dumps(claim))


def pretend(plan, run, made_up):
    """A finished run that never ran."""
    folder = plan.place(run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(plan.recipe(run).to_dict()))
    plan.finish(run, made_up)
