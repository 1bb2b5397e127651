"""dares study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from typer.core import TyperGroup

from dares.commands.evaluate import command_line
from dares.commands.recipes import Set
from dares.commands.running import Cache
from dares.commands.terminal import console
from dares.names import unknown_name
from dares.study.studies import STUDIES

if TYPE_CHECKING:
    from dares.study.board import Board
    from dares.study.plan import Plan

Reuse = Annotated[
    list[Path] | None,
    typer.Option(help="Another study's folder: runs that are the same are taken from it."),
]
Folder = Annotated[Path, typer.Argument(help="A study's folder.")]


class _Studies(TyperGroup):
    """Beside the studies there are, FILE.py:FUNCTION is one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The study's command, under the name that was typed."""
        name = args[0]
        if name not in self.commands and ".py:" in name:
            return name, self.commands[next(iter(STUDIES))], args[1:]
        if name not in self.commands and not name.startswith("-"):
            raise ValueError(unknown_name("study", name, [*self.commands, "FILE.py:FUNCTION"]))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Studies,
    help="Compare schemes over several seeds: one honest table. Or FILE.py:FUNCTION, your own.",
    no_args_is_help=True,
)


def study_command(
    context: typer.Context,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="Text to train on, as in `dares prepare`; none: the recipe's own."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The study's folder; else studies/STUDY.", show_default=False),
    ] = None,
    base: Annotated[str, typer.Option("--recipe", help="The base of all variants.")] = "mini",
    changes: Set = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; else the study's own.")] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Tokens a run; else the recipe's steps.", show_default=False)
    ] = None,
    variants: Annotated[
        str | None, typer.Option(help="Only these, with commas between them.", show_default=False)
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(help="lr: try learning rates for each variant first, in short runs."),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(help="The rates that --tune lr tries; else the recipe's / 3, x 1, x 3."),
    ] = None,
    tune_share: Annotated[
        float | None,
        typer.Option(help="Share of a run's steps for which a rate is tried; else 0.5."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Worker processes; on GPUs one GPU each.")] = 1,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed runs again.")] = False,
    reuse: Reuse = None,
    timing: Annotated[
        bool, typer.Option(help="Measure step times in a calm pass at the end.")
    ] = True,
    cache: Cache = None,
) -> None:
    """Run a study, or go on with it: a finished run is never repeated."""
    from dares.study.ask import Request, build_study
    from dares.study.launch import run_workers, threads
    from dares.study.plan import STUDY, Plan
    from dares.train.loop import prepare_data

    name = str(context.info_name)
    study = build_study(
        Request(
            name,
            recipe=base,
            inputs=inputs or (),
            changes=changes or (),
            seeds=seeds,
            tokens=tokens,
            variants=variants,
            tune=tune,
            rates=rates,
            tune_share=tune_share,
        )
    )
    folder = out or Path("studies") / study.name
    study = study.with_pinned_text(Plan.read(folder).study if (folder / STUDY).exists() else None)
    each = threads(jobs)
    others = [path.resolve() for path in reuse or ()]
    for path in others:
        Plan.read(path)
    data = prepare_data(study.variants[0].recipe, cache)  # before any process needs it
    console.print(f"text: {data.train.tokens:,} tokens to train on", highlight=False)
    if len(data.validation) < 2:
        raise ValueError(
            f"the text to validate on fills {len(data.validation)} row of "
            f"{study.variants[0].recipe.data.row_tokens} tokens, and a study needs 2: give more"
        )
    plan = Plan.begin(folder, study, data.key, command_line())
    for run in plan.retry() if retry else ():
        console.print(f"{run.name}: tried again", highlight=False)
    with _watching(plan) as board:
        run_workers(plan, jobs, cache=cache, reuse=others, watch=board)
    if timing:
        _time(plan, each, cache)
    _report(plan)


for _name, _study in STUDIES.items():
    app.command(_name, help=_study.__doc__)(study_command)


@app.command("worker")
def worker_command(folder: Folder, cache: Cache = None, reuse: Reuse = None) -> None:
    """Work on a study beside other workers, on any machine that sees its folder."""
    from dares.study.worker import work

    work(folder, cache=cache, reuse=reuse or (), say=_say)


@app.command("status")
def status_command(folder: Folder) -> None:
    """Show how far a study is."""
    from dares.study.board import Board
    from dares.study.plan import Plan

    console.print(Board(Plan.read(folder)).table())


@app.command("report")
def report_command(
    folder: Folder,
    timing: Annotated[
        bool, typer.Option(help="Measure step times first, if that was not done.")
    ] = False,
    cache: Cache = None,
) -> None:
    """Write tables, figures and the page from the runs that are done."""
    from dares.study.plan import Plan

    plan = Plan.read(folder)
    if timing:
        import torch

        left = plan.open_runs()
        if left:
            raise ValueError(
                f"{len(left)} runs are not done, and they would disturb the timing: leave "
                "--timing out, or wait"
            )
        _time(plan, torch.get_num_threads(), cache)
    _report(plan)


def _time(plan: Plan, threads: int, cache: Path | None) -> None:
    """Measure step times; where that fails, the tables are not to be lost with it."""
    from dares.study.timing import measure_costs

    _say("step times, in a calm pass")
    try:
        measure_costs(plan, threads=threads, cache=cache)
    except (RuntimeError, ValueError) as error:  # two models at a time may be more than fits
        reason = str(error).strip().partition("\n")[0]
        _say(f"step times could not be measured ({reason}): the tables are without them")


@contextmanager
def _watching(plan: Plan) -> Iterator[Any]:
    """A function that shows how far the study is: a live table, or a line a run elsewhere."""
    from dares.study.board import Board

    board = Board(plan)
    if not console.is_terminal:
        yield lambda: _tell(board)
        return
    with Live(board.table(), console=console, auto_refresh=False) as live:

        def show() -> None:
            _tell(board)
            live.update(board.table(), refresh=True)

        yield show


def _tell(board: Board) -> None:
    for line in board.news():
        _say(line)


def _say(line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _report(plan: Plan) -> None:
    from rich.table import Table

    from dares.study.report import sentences, where, write_report
    from dares.study.table import short

    data = write_report(plan)
    table = short(data)
    shown = Table(title=table.title, title_justify="left", pad_edge=False)
    for place, heading in enumerate(table.headings):
        shown.add_column(heading, no_wrap=place == 0, overflow="fold")  # names whole
    for cells, bold in zip(table.rows, table.bold, strict=True):
        shown.add_row(*cells, style="bold" if bold else None)
    console.print(shown)
    for sentence in sentences(data):
        _say(sentence)
    if data["failed"]:
        _say(f"{len(data['failed'])} runs failed; --retry tries them again:")
        for name, error in data["failed"].items():
            _say(f"  {name}: {error}")
    _say(f"where: {where(plan.folder)}")
