"""A worker: takes one run of a study after the other until there is none left."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from dares.data.rows import PackedData
from dares.provenance import known_versions, machine
from dares.study.claims import BEAT, STALE, Claim, Observer
from dares.study.measure import losses, routing
from dares.study.plan import Plan, Run
from dares.study.reuse import adopt
from dares.train.interrupt import watching
from dares.train.loop import prepare_data, train
from dares.train.parallel import Ranks, joined
from dares.train.recipe import Recipe

POLL = 2.0  # seconds between two looks for a run that has become free


def work(
    folder: Path,
    *,
    cache: str | Path | None = None,
    reuse: Sequence[Path] = (),
    say: Callable[[str], None] = print,
    beat: float = BEAT,
    stale: float = STALE,
    poll: float = POLL,
) -> None:
    """Work on a study's folder beside any number of others; returns when all runs are settled.

    reuse: other studies' folders, whose finished runs are taken where they are the same.
    """
    worker = _Worker(Plan.read(folder), cache, [Plan.read(path) for path in reuse], say)
    worker.text(worker.plan.study.variants[0].recipe)  # wrong here, it would be wrong for every run
    observer = Observer(stale)
    with joined(None) as ranks, watching() as interrupt:
        while not interrupt:
            left = worker.plan.open_runs()
            if not left:
                return
            taken = _take(worker.plan, left, observer, beat)
            if taken is None:
                # not all at the same moment
                time.sleep(poll * random.uniform(0.5, 1.0))
                continue
            run, claim = taken
            with claim:
                worker.do(run, ranks)
    say(f"stopped by {interrupt.name}: a worker on this folder goes on from the last checkpoint")


def _take(
    plan: Plan, runs: Sequence[Run], observer: Observer, beat: float
) -> tuple[Run, Claim] | None:
    """The first run that is ready and free; those that workers die with come last."""
    for run in sorted(runs, key=lambda run: observer.is_deadly(plan.place(run))):
        if plan.is_ready(run):
            claim = observer.take(plan.place(run), beat=beat)
            if claim is not None:
                return run, claim
    return None


class _Worker:
    def __init__(
        self,
        plan: Plan,
        cache: str | Path | None,
        others: Sequence[Plan],
        say: Callable[[str], None],
    ) -> None:
        self.plan, self.cache, self.others, self.say = plan, cache, others, say
        # asked now: the checkout may have moved on when a run ends
        self.made = {"versions": known_versions(), "machine": machine()}

    def text(self, recipe: Recipe) -> PackedData:
        """The study's rows; an error if they are not those that it was begun with."""
        data = prepare_data(recipe, self.cache)
        self.plan.check_text(data.key)
        return data

    def do(self, run: Run, ranks: Ranks) -> None:
        """Train and measure one run; an error is kept in its folder."""
        if self.plan.is_settled(run):
            return  # by another worker, since we looked
        try:
            self._do(run, ranks)
        except Exception as error:  # whatever it was, the other runs go on
            sentence = str(error) if isinstance(error, ValueError) else _in_a_line(error)
            self.plan.fail(run, f"{sentence}\n\n{traceback.format_exc()}")
            self.say(f"{run.name}: failed: {sentence}")

    def _do(self, run: Run, ranks: Ranks) -> None:
        recipe, folder = self.plan.recipe(run), self.plan.place(run)
        _guard(recipe, ranks)
        data = self.text(recipe)
        found = adopt(self.plan, run, self.others, data.key)
        if found is not None:
            self.say(f"{run.name}: taken from {found}")
            return
        self.say(f"{run.name}: begins")
        done = train(recipe, folder, ranks=ranks, resume=True, cache=self.cache)
        if not done.finished:
            return  # a signal, which `work` has noted too
        result = {**losses(folder, recipe), "data": data.key, "made": self.made}
        if run.rate is None:
            result |= routing(folder, data, ranks)
        self.plan.finish(run, result)
        self.say(f"{run.name}: validation loss {result['validation_loss']:.4f}")


def _guard(recipe: Recipe, ranks: Ranks) -> None:
    if recipe.run.precision == "bf16" and ranks.device.type == "cpu":
        from dares.doctor import guard_bf16

        guard_bf16()


def _in_a_line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]}"
