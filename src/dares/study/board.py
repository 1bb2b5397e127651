"""How far a study is: a row a variant, read off its folder."""

from __future__ import annotations

from rich.table import Table

from dares.study.claims import Observer
from dares.study.plan import Plan, Run
from dares.study.study import Variant
from dares.train.metrics import FILE, read_metrics


class Board:
    """The live table, and what has happened since the last look."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.observer = plan, Observer()
        self._losses: dict[str, float] = {}  # of runs that are done: what is done stays as it is
        self._told = {run.name for run in (*plan.tuning, *plan.runs) if plan.is_settled(run)}

    def table(self) -> Table:
        """Rates, runs that are done, runs that are under way, the mean loss so far."""
        study = self.plan.study
        shown = Table(title=f"study {study.name}", pad_edge=False, title_justify="left")
        shown.add_column("variant", no_wrap=True)
        columns = ["rates tried", "lr"] * bool(study.rates)
        for heading in (*columns, "seeds done", "under way", "validation loss", "failed"):
            shown.add_column(heading, justify="left" if heading == "under way" else "right")
        for variant in study.variants:
            shown.add_row(*self._cells(variant))
        return shown

    def news(self) -> list[str]:
        """A line for every run that has ended since the last call."""
        lines = []
        for run in (*self.plan.tuning, *self.plan.runs):
            if run.name in self._told or not self.plan.is_settled(run):
                continue
            self._told.add(run.name)
            error = self.plan.error(run)
            if error is not None:
                lines.append(f"{run.name}: failed: {error}")
            else:
                lines.append(f"{run.name}: validation loss {self._loss(run):.4f}")
        return lines

    def _cells(self, variant: Variant) -> list[str]:
        plan = self.plan
        tuning = [run for run in plan.tuning if run.variant is variant]
        runs = [run for run in plan.runs if run.variant is variant]
        done = [run for run in runs if plan.is_done(run)]
        cells = [variant.name]
        if tuning:
            tried = sum(plan.is_settled(run) for run in tuning)
            rate = done and plan.rate(variant)
            cells += [f"{tried}/{len(tuning)}", f"{rate:g}" if rate else ""]
        under_way = (self._progress(run) for run in (*tuning, *runs) if self._is_running(run))
        losses = [self._loss(run) for run in done]
        failed = sum(plan.error(run) is not None for run in (*tuning, *runs))
        return [
            *cells,
            f"{len(done)}/{len(runs)}",
            ", ".join(under_way),
            f"{sum(losses) / len(losses):.4f}" if losses else "",
            str(failed or ""),
        ]

    def _loss(self, run: Run) -> float:
        if run.name not in self._losses:
            self._losses[run.name] = self.plan.result(run)["validation_loss"]
        return self._losses[run.name]

    def _is_running(self, run: Run) -> bool:
        return not self.plan.is_settled(run) and self.observer.is_held(self.plan.place(run))

    def _progress(self, run: Run) -> str:
        lines = read_metrics(self.plan.place(run) / FILE)
        step = lines[-1]["step"] if lines else 0
        return f"{run.name.rpartition('/')[2]} {step}/{self.plan.steps(run)}"
