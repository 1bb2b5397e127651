"""A training run from a recipe to a trained model, which can stop at any moment and go on."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dares.data.loader import Loader
from dares.data.prepare import prepare
from dares.data.rows import PackedData
from dares.routing.metrics import mean_sharpness
from dares.train.checkpoint import Checkpoints
from dares.train.engine import Engine, StepResult, check_shares
from dares.train.finish import write_model
from dares.train.folder import check_folder, claim_folder, with_pinned_text
from dares.train.interrupt import Interrupt, watching
from dares.train.metrics import (
    FILE,
    Metrics,
    check_trackers,
    read_metrics,
    validation_losses,
)
from dares.train.parallel import Ranks
from dares.train.pretrained import check_rows, check_start
from dares.train.recipe import Recipe
from dares.train.report import Reporter

__all__ = ["Progress", "Result", "prepare_data", "train"]


@dataclass
class Progress:
    """Where a run is; all that a checkpoint needs beside weights and optimizer."""

    step: int = 0  # optimizer steps done, skipped ones counted: the loader's position too
    skipped: int = 0
    bad_in_a_row: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """What a run ended with; `finished` is False where a signal stopped it.

    validation_losses  first and last; the first is that of the start where there was one
    """

    folder: Path
    finished: bool
    step: int
    validation_losses: tuple[float, float] | None

    @property
    def validation_loss(self) -> float | None:
        """The last one."""
        return self.validation_losses[1] if self.validation_losses else None


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    ranks: Ranks,
    resume: bool = False,
    reporter: Reporter | None = None,
    track: Sequence[str] = (),
    reshard: bool = True,
    cache: str | Path | None = None,
) -> Result:
    """Train a recipe in a folder; with resume, go on from its newest whole checkpoint."""
    check_shares(recipe, ranks)
    check_trackers(track)
    run = _Run(recipe, Path(folder), ranks, reporter or Reporter(), reshard)
    with _determinism(recipe.run.deterministic):
        return run.go(resume=resume, track=track, cache=cache)


@contextmanager
def _determinism(wanted: bool) -> Iterator[None]:
    """Only algorithms that give the same bits every time; others raise."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class _Run:
    def __init__(
        self, recipe: Recipe, folder: Path, ranks: Ranks, reporter: Reporter, reshard: bool
    ) -> None:
        self.recipe, self.folder, self.ranks = recipe, folder, ranks
        self.reporter, self.reshard = reporter, reshard
        self.progress = Progress()
        self.checkpoints = Checkpoints(folder / "checkpoints", ranks, keep=recipe.run.keep)

    def go(self, *, resume: bool, track: Sequence[str], cache: str | Path | None) -> Result:
        ranks, restarted = self.ranks, self.ranks.restarted
        with ranks.first_goes_first():
            if ranks.first:
                self.recipe = with_pinned_text(self.folder, self.recipe)
        self.recipe = ranks.gather(self.recipe)[0]
        self._warn()
        with ranks.first_goes_first():
            if ranks.first:
                check_folder(self.folder, self.recipe, resume=resume, restarted=restarted)
            self.data = prepare_data(self.recipe, cache, self.reporter)
        self.loader = Loader(
            self.data.train,
            rows_per_step=self.recipe.batch.rows,
            seed=self.recipe.run.seed,
            rank=ranks.rank,
            world=ranks.world,
        )
        self.engine = Engine(self.recipe, ranks, reshard=self.reshard)
        if self.recipe.start is not None:
            learn, all_there_are = self.engine.learning()
            share = f"{learn / all_there_are:.2%}"
            self.reporter.say(f"{learn:,} of {all_there_are:,} parameters learn ({share})")
        if resume or restarted:
            self._load()
        self.metrics = None
        with ranks.first_goes_first():
            if ranks.first:
                claim_folder(self.folder, self.recipe)
                settings, step = self.recipe.to_dict(), self.progress.step
                self.metrics = Metrics(self.folder, track, settings, step=step)
        self.reporter.start(self.recipe.name, self.progress.step, self.recipe.run.steps)
        try:
            with watching() as interrupt:
                finished = self._steps(interrupt)
        finally:
            self.reporter.stop()
            if self.metrics is not None:
                self.metrics.close()
        losses = self._finish() if finished else None
        return Result(self.folder, finished, self.progress.step, losses)

    def _warn(self) -> None:
        warmup, steps = self.recipe.optim.warmup, self.recipe.run.steps
        if warmup > steps:
            self.reporter.say(
                f"optim.warmup ({warmup}) is more than run.steps ({steps}): the learning rate "
                "never reaches optim.lr"
            )

    # -- the loop ------------------------------------------------------------------------------

    def _steps(self, interrupt: Interrupt) -> bool:
        """Until the last step, or a signal: True if all were done."""
        run, progress = self.recipe.run, self.progress
        if self.recipe.start is not None and progress.step == 0:
            self._validate()  # what the start is worth
        clock, last_logged = time.perf_counter(), progress.step
        stopping = False
        while progress.step < run.steps and not stopping:
            result = self.engine.step(self.loader, progress.step)
            progress.step += 1
            self._count(result)
            line = None
            if progress.step % run.log_every == 0 or progress.step == run.steps:
                now = time.perf_counter()
                line = self._line(result, progress.step - last_logged, now - clock)
                clock, last_logged = now, progress.step
            self.reporter.step(line)
            self._write(line)
            if progress.step % run.eval_every == 0 or progress.step == run.steps:
                self._validate()
                clock, last_logged = time.perf_counter(), progress.step
            asked, written = self.ranks.sum(bool(interrupt), self.checkpoints.ready())
            stopping = asked > 0
            if written == self.ranks.world:
                self.checkpoints.finish()
            due = progress.step % run.checkpoint_every == 0
            if due or stopping or progress.step == run.steps:
                self.checkpoints.save(self.engine.network, self.engine.optimizer, self._saved())
        self.checkpoints.close()
        if progress.step < run.steps:
            self.reporter.say(
                f"stopped by {interrupt.name or 'a signal to another rank'} after step "
                f"{progress.step}; go on with --resume"
            )
            return False
        return True

    def _count(self, result: StepResult) -> None:
        """Keep count of steps that were skipped, and stop when they do not end."""
        progress, run = self.progress, self.recipe.run
        if result.taken:
            progress.bad_in_a_row = 0
            return
        progress.skipped += 1
        progress.bad_in_a_row += 1
        self.reporter.say(
            f"step {progress.step}: loss {result.loss:g}, gradient norm "
            f"{result.gradient_norm:g}: skipped"
        )
        if progress.bad_in_a_row >= run.max_bad_steps:
            self.checkpoints.close()
            raise ValueError(
                f"{progress.bad_in_a_row} steps in a row, up to step {progress.step}, had a loss "
                "or gradient that is not finite; the last good checkpoint is kept: try a new run "
                "with a lower optim.lr, a longer optim.warmup or run.precision=fp32"
            )

    def _line(self, result: StepResult, steps: int, seconds: float) -> dict[str, Any]:
        routing = mean_sharpness(self.engine.sharpness(self.data.validation))
        self.progress.seconds += seconds
        return {
            "step": self.progress.step,
            "loss": result.loss if math.isfinite(result.loss) else None,
            "lr": result.lr,
            "gradient_norm": result.gradient_norm if result.taken else None,
            "tokens_per_second": steps * self.recipe.tokens_per_step / seconds,
            "memory_mb": self.engine.memory_mb(),
            "largest_weight": routing and routing.largest,
            "routing_entropy": routing and routing.entropy,
            "skipped": self.progress.skipped,
        }

    def _validate(self) -> None:
        loss = self.engine.validate(self.data.validation, self.recipe.run.eval_rows)
        line: dict[str, Any] = {
            "step": self.progress.step,
            "validation_loss": loss,
            "validation_perplexity": math.exp(min(loss, 700.0)),
        }
        sites = self.engine.sharpness(self.data.validation)
        if any(sites):
            line["site_largest_weight"] = [site and site.largest for site in sites]
            line["site_entropy"] = [site and site.entropy for site in sites]
        self._write(line)
        self.reporter.validated(line)

    def _write(self, line: dict[str, Any] | None) -> None:
        if line is not None and self.metrics is not None:
            self.metrics.write(line)

    # -- beginning and end ---------------------------------------------------------------------

    def _load(self) -> None:
        found = self.checkpoints.newest(self.reporter.say) if self.ranks.first else None
        path = self.ranks.gather(found)[0]
        if path is None:
            self.reporter.say(f"no whole checkpoint in {self.folder}: starting at step 0")
            return
        saved = self.checkpoints.load(path, self.engine.network, self.engine.optimizer)
        if saved["data"] != self.data.key:
            raise ValueError(
                f"the data of {self.folder} is not what the run began with: put the inputs back as "
                "they were, or start a new run"
            )
        changed = self.ranks.first and saved.get("frozen_base") != self.engine.frozen_base
        self.ranks.agree(
            f"the model that {self.folder} started from has other weights now: put it back as it "
            "was, or start a new run"
            if changed
            else None
        )
        self.progress = Progress(**saved["progress"])
        self.reporter.say(f"going on from {path.name}")

    def _saved(self) -> dict[str, Any]:
        return {
            "step": self.progress.step,
            "progress": asdict(self.progress),  # as it is now: it is written later
            "data": self.data.key,
            "frozen_base": self.engine.frozen_base,
            "recipe": self.recipe.to_dict(),
        }

    def _finish(self) -> tuple[float, float] | None:
        write_model(self.engine, self.data, self.folder)
        losses = validation_losses(read_metrics(self.folder / FILE))
        return (losses[0], losses[-1]) if losses else None


def prepare_data(
    recipe: Recipe, cache: str | Path | None = None, reporter: Reporter | None = None
) -> PackedData:
    """The recipe's text as rows, which the model's vocabulary must cover."""
    settings = recipe.data
    if recipe.start is not None:
        check_start(recipe, recipe.start)
    data = prepare(
        settings.inputs,
        tokenizer=settings.tokenizer,
        vocabulary=settings.vocabulary,
        row_tokens=settings.row_tokens,
        validation=settings.validation,
        validation_inputs=settings.validation_inputs,
        text_field=settings.text_field,
        limit=settings.limit,
        cache=cache,
        progress=reporter.preparing if reporter is not None else None,
    )
    if recipe.start is not None:
        check_rows(recipe, data)
    elif data.vocabulary > recipe.model.vocabulary:
        raise ValueError(
            f"the tokenizer has {data.vocabulary} ids and model.vocabulary is "
            f"{recipe.model.vocabulary}: --set model.vocabulary={data.vocabulary}"
        )
    return data
