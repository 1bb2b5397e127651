"""A study's folder: what it is, its runs, how far each is, and the rates that were chosen.

DIR/study.json                    the study
DIR/runs/VARIANT/seed-0/          a training run, as `dares train` makes it, and
    result.json                   what was measured at its end: the run is done
    error.txt                     why it failed: it is left alone until it is asked for again
    claims/                       who has it
DIR/runs/VARIANT/rate-0.003/      a short run that tries a learning rate
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dares.durable import PART, write_whole, writing
from dares.study.study import TUNING_SEED, Study, Variant
from dares.train.folder import differences, read_recipe
from dares.train.recipe import Recipe

STUDY, RESULT, ERROR = "study.json", "result.json", "error.txt"
# in study.json, beside the study: the key of the rows that all runs read, and what was typed
TEXT, COMMAND = "text", "command"


@dataclass(frozen=True)
class Run:
    """A variant with a seed. rate: the one that a short run tries; None: a run of the table."""

    variant: Variant
    seed: int
    rate: float | None = None

    @property
    def name(self) -> str:
        """As in a path, and for people."""
        last = f"seed-{self.seed}" if self.rate is None else f"rate-{self.rate:g}"
        return f"{self.variant.name}/{last}"


class Plan:
    """The runs of a study in its folder."""

    def __init__(
        self, folder: Path, study: Study, text: str | None = None, command: str | None = None
    ) -> None:
        """text: the key of the rows that all runs read; command: what was typed; None: not said."""
        self.folder, self.study, self.text, self.command = folder, study, text, command

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Of a folder that a study was begun in."""
        path = folder / STUDY
        try:
            told = json.loads(path.read_text())
            beside = {key: told.pop(key, None) for key in (TEXT, COMMAND)}
            study = Study.from_dict(told)
        except OSError as error:
            raise ValueError(
                f"there is no study in {folder}: begin one with dares study NAME --out {folder}"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is not a study's ({error!r}): put it back, or choose another folder"
            ) from error
        return cls(folder, study, **beside)

    @classmethod
    def begin(
        cls, folder: Path, study: Study, text: str | None = None, command: str | None = None
    ) -> Plan:
        """A study in a folder that is new, empty, or its own."""
        path = folder / STUDY
        plan = cls(folder, study, text, command)
        if path.exists():
            begun = cls.read(folder)
            _check_same(folder, begun.study, study)
            plan.check_text(begun.text)
            plan.text = plan.text or begun.text
            plan.command = plan.command or begun.command
        elif folder.exists() and not _is_empty(folder):
            raise ValueError(f"{folder} holds something else than a study: choose another --out")
        with writing(str(path)):
            folder.mkdir(parents=True, exist_ok=True)
            beside = {TEXT: plan.text, COMMAND: plan.command}
            write_whole(path, json.dumps({**beside, **study.to_dict()}, indent=1) + "\n")
        return plan

    def check_text(self, text: str | None) -> None:
        """An error if these are other rows than the study's."""
        if None not in (text, self.text) and text != self.text:
            raise ValueError(
                f"the text of the study in {self.folder} is not what it was begun with: put it "
                "back as it was, or choose another --out"
            )

    # -- runs ----------------------------------------------------------------------------------

    @property
    def tuning(self) -> list[Run]:
        """The runs that try rates."""
        rates = self.study.rates
        return [Run(v, TUNING_SEED, rate) for v in self.study.variants for rate in rates]

    @property
    def runs(self) -> list[Run]:
        """The runs of the table: all variants of a seed, then the next seed."""
        return [Run(v, seed) for seed in self.study.seeds for v in self.study.variants]

    def place(self, run: Run) -> Path:
        """A run's folder."""
        return self.folder / "runs" / run.name

    def recipe(self, run: Run) -> Recipe:
        """What a run trains; its rate must have been chosen."""
        recipe = run.variant.recipe
        rate = run.rate if run.rate is not None else self.rate(run.variant)
        assert rate is not None, "the run has to wait for its rate"
        warmup = int(recipe.optim.warmup * self._share(run))
        return replace(
            recipe,
            name=run.name.replace("/", "-"),
            optim=replace(recipe.optim, lr=rate, warmup=warmup),
            run=replace(recipe.run, seed=run.seed, steps=self.steps(run)),
        )

    def steps(self, run: Run) -> int:
        """How long it is, whatever its rate."""
        return max(1, int(run.variant.recipe.run.steps * self._share(run)))

    def _share(self, run: Run) -> float:
        return self.study.tuning_share if run.rate is not None else 1.0

    def is_done(self, run: Run) -> bool:
        """Was it trained and measured?"""
        return (self.place(run) / RESULT).exists()

    def error(self, run: Run) -> str | None:
        """Why a run failed, in a sentence; None if it did not."""
        path = self.place(run) / ERROR
        return path.read_text().splitlines()[0] if path.exists() else None

    def is_settled(self, run: Run) -> bool:
        """Is there nothing left to do for it?"""
        return self.is_done(run) or self.error(run) is not None

    def open_runs(self) -> list[Run]:
        """What is left to do, in order."""
        return [run for run in (*self.tuning, *self.runs) if not self.is_settled(run)]

    def is_ready(self, run: Run) -> bool:
        """Can it begin, its rate being known?"""
        return run.rate is not None or self._is_tuned(run.variant)

    # -- what was found ------------------------------------------------------------------------

    def result(self, run: Run) -> dict[str, Any]:
        """What was measured at the end of a run, which must be a run of this study."""
        folder = self.place(run)
        changed = differences(read_recipe(folder), self.recipe(run))
        if changed:
            raise ValueError(
                f"{folder} holds another run ({'; '.join(changed)}): remove it, or use another "
                "folder for this study"
            )
        result: dict[str, Any] = json.loads((folder / RESULT).read_text())
        return result

    def finish(self, run: Run, result: dict[str, Any]) -> None:
        """Keep a run's result; what it needed to go on is no longer needed."""
        folder = self.place(run)
        with writing(str(folder / RESULT)):
            write_whole(folder / RESULT, json.dumps(result, indent=1, allow_nan=False) + "\n")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        if run.rate is not None:
            shutil.rmtree(folder / "model", ignore_errors=True)

    def fail(self, run: Run, text: str) -> None:
        """Keep why a run failed; the first line says it."""
        path = self.place(run) / ERROR
        with writing(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)

    def retry(self) -> list[Run]:
        """Let failed runs be tried again; which they are.

        A rate that failed stays out once a run has begun with the best of the others.
        """
        begun = {
            run.variant.name
            for run in self.runs
            if self.place(run).exists()
            and any(loss is not None for loss in self.tried(run.variant).values())
        }
        tuning = [run for run in self.tuning if run.variant.name not in begun]
        failed = [run for run in (*tuning, *self.runs) if self.error(run) is not None]
        for run in failed:
            (self.place(run) / ERROR).unlink()
        return failed

    # -- rates ---------------------------------------------------------------------------------

    def tried(self, variant: Variant) -> dict[float, float | None]:
        """Each rate that was tried, and the loss it gave; None where that run failed."""
        runs = [run for run in self.tuning if run.variant is variant and self.is_settled(run)]
        return {
            run.rate: self.result(run)["validation_loss"] if self.is_done(run) else None
            for run in runs
            if run.rate is not None
        }

    def rate(self, variant: Variant) -> float | None:
        """The rate of a variant's runs: the best of those tried; None while that is not known."""
        if not self.study.rates:
            return variant.recipe.optim.lr
        if not self._is_tuned(variant):
            return None
        losses = {rate: loss for rate, loss in self.tried(variant).items() if loss is not None}
        if not losses:
            raise ValueError(
                f"every run that tried a rate for {variant.name} failed: see their {ERROR}"
            )
        return min(losses, key=lambda rate: (losses[rate], rate))

    def _is_tuned(self, variant: Variant) -> bool:
        return all(self.is_settled(run) for run in self.tuning if run.variant is variant)


def _is_empty(folder: Path) -> bool:
    """Nothing is there, or what was left of a write that did not end."""
    return folder.is_dir() and all(path.name == STUDY + PART for path in folder.iterdir())


def _check_same(folder: Path, begun: Study, now: Study) -> None:
    """An error unless the folder's study is this one; it may be given more seeds."""
    if begun.name != now.name:
        raise ValueError(
            f"{folder} belongs to study {begun.name!r}, not to {now.name!r}: choose another --out"
        )
    changed = []
    if not set(begun.seeds) <= set(now.seeds):
        changed.append(f"seeds were {begun.seeds}, are {now.seeds}")
    # another rate might win now, and runs were made with the winner
    if begun.rates != now.rates:
        changed.append(f"rates were {begun.rates}, are {now.rates}")
    if begun.tuning_share != now.tuning_share:
        changed.append(f"--tune-share was {begun.tuning_share:g}, is {now.tuning_share:g}")
    names = [[(v.name, v.baseline) for v in study.variants] for study in (begun, now)]
    if names[0] != names[1]:
        changed.append("its variants were " + ", ".join(name for name, _ in names[0]))
    else:
        for was, is_now in zip(begun.variants, now.variants, strict=True):
            changed += [f"{was.name}: {each}" for each in differences(was.recipe, is_now.recipe)]
    if changed:
        more = f"; and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ValueError(
            f"the study in {folder} was begun with other settings ({'; '.join(changed[:3])}{more}):"
            " use those, or choose another --out"
        )
