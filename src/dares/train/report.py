"""What a person sees while a run goes on: a bar with the time left on a terminal, else lines."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Reporter:
    """Silent: for ranks that do not print, and for programs that call `train`."""

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        """The text is being made into rows: at which stage, and how many bytes of it."""

    def start(self, name: str, step: int, steps: int) -> None:
        """The run begins, or goes on, at that step."""

    def say(self, text: str) -> None:
        """Something that a person should know."""

    def step(self, line: dict[str, Any] | None) -> None:
        """A step was done; its line, if it was logged."""

    def validated(self, line: dict[str, Any]) -> None:
        """A validation was done."""

    def stop(self) -> None:
        """The run is over."""


class TerminalReporter(Reporter):
    """On a terminal a live bar; elsewhere (a file, a job's log) one line a logged step."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._steps, self._validation = 0, ""
        self._stage = "hashing"  # quick, and all there is where the text is ready

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        if stage != self._stage:
            self._stage = stage
            self.say(f"text: {stage}")

    def start(self, name: str, step: int, steps: int) -> None:
        self._steps = steps
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self.console,
            )
            self._task = self._bar.add_task(name, total=steps, completed=step, figures="")
            self._bar.start()

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def step(self, line: dict[str, Any] | None) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)
            if line is not None:
                self._bar.update(self._task, figures=f"{_short(line)}{self._validation}")
        elif line is not None:
            self.say(f"step {line['step']}/{self._steps}  {_long(line)}")

    def validated(self, line: dict[str, Any]) -> None:
        if self._bar is not None:
            self._validation = f"  val {line['validation_loss']:.3f}"
            return
        self.say(
            f"step {line['step']}/{self._steps}  validation loss {line['validation_loss']:.4f}  "
            f"perplexity {line['validation_perplexity']:.2f}"
        )

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _short(line: dict[str, Any]) -> str:
    return f"{_figure('loss', line['loss'], '.3f')}  {line['tokens_per_second']:,.0f} tok/s"


def _long(line: dict[str, Any]) -> str:
    parts = [
        _figure("loss", line["loss"], ".4f"),
        f"lr {line['lr']:.2e}",
        _figure("grad", line["gradient_norm"], ".2f"),
        f"{line['tokens_per_second']:,.0f} tok/s",
        f"{line['memory_mb']:,.0f} MB",
    ]
    if line["largest_weight"] is not None:
        parts.append(f"weight {line['largest_weight']:.2f}")
        parts.append(f"entropy {line['routing_entropy']:.2f}")
    if line["skipped"]:
        parts.append(f"skipped {line['skipped']}")
    return "  ".join(parts)


def _figure(name: str, value: float | None, form: str) -> str:
    return f"{name} not finite" if value is None else f"{name} {value:{form}}"
