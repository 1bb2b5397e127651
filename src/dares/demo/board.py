"""What the demo shows while it works: a row for each part of it on a terminal, elsewhere lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dares.data.rows import PackedData
from dares.train.report import Reporter

TEXT, TIMING = "text", "step times"


class Board:
    """All rows at once: the text, the schemes, the timing at the end."""

    def __init__(self, console: Console, schemes: Sequence[str]) -> None:
        self.console, self.live = console, console.is_terminal
        self._stage = ""
        self._rows = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=14, pulse_style="bar.back"),  # a row that waits lies still
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not self.live,
        )
        self._tasks = {
            name: self._rows.add_task(name, start=False, figures="")
            for name in (TEXT, *schemes, TIMING)
        }

    def __enter__(self) -> Board:
        self._rows.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.stop()

    def begin(self, name: str, total: int) -> None:
        """A row's work begins."""
        self._rows.update(self._tasks[name], total=total)
        self._rows.start_task(self._tasks[name])

    def show(self, name: str, **changes: Any) -> None:
        """Change a row: completed=, advance=, figures=."""
        self._rows.update(self._tasks[name], **changes)

    def say(self, name: str, text: str) -> None:
        """A line, above the rows where there are any."""
        self.console.print(f"{name}: {text}", soft_wrap=True, highlight=False, markup=False)

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        """How far a stage of `dares.data.prepare` is."""
        if stage != self._stage:
            self._stage = stage
            self.begin(TEXT, total or 1)
            if not self.live:
                self.say(TEXT, stage)
        self.show(TEXT, completed=done, figures=stage)

    def prepared(self, data: PackedData) -> None:
        """The text is ready."""
        figures = f"{data.train.tokens:,} tokens"
        self.show(TEXT, completed=data.train.tokens, total=data.train.tokens, figures=figures)
        if not self.live:
            self.say(TEXT, f"{figures} to train on, {data.validation.tokens:,} to validate with")

    def reporter(self, scheme: str) -> Reporter:
        """What the training loop tells about one scheme."""
        return _Row(self, scheme)

    def timing(self, rounds: range) -> Iterator[int]:
        """The rounds of the timing, as they are done."""
        self.begin(TIMING, len(rounds))
        if not self.live:
            self.say(TIMING, f"{len(rounds)} rounds, the schemes in turn")
        for index in rounds:
            yield index
            self.show(TIMING, advance=1)


class _Row(Reporter):
    def __init__(self, board: Board, scheme: str) -> None:
        self.board, self.scheme = board, scheme
        self._steps, self._loss, self._perplexity = 0, "", ""

    def start(self, name: str, step: int, steps: int) -> None:
        self._steps = steps
        self.board.begin(self.scheme, steps)

    def say(self, text: str) -> None:
        self.board.say(self.scheme, text)

    def step(self, line: dict[str, Any] | None) -> None:
        self.board.show(self.scheme, advance=1)
        if line is not None and line["loss"] is not None:
            self._loss = f"loss {line['loss']:.2f}"
            self._tell(line["step"], self._loss)

    def validated(self, line: dict[str, Any]) -> None:
        self._perplexity = f"perplexity {line['validation_perplexity']:.1f}"
        self._tell(line["step"], f"validation {self._perplexity}")

    def _tell(self, step: int, news: str) -> None:
        if self.board.live:
            self.board.show(self.scheme, figures=f"{self._loss} {self._perplexity}")
        else:
            self.say(f"step {step}/{self._steps}  {news}")
