"""dares bench."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from dares.commands.terminal import check_folder, console
from dares.names import unknown_name
from dares.presets import PRESETS

if TYPE_CHECKING:
    from dares.bench.rows import Row
    from dares.bench.workloads import Shape

app = typer.Typer(
    help="Measure depth mixing on this machine: ratios from interleaved repeats in one process.",
    no_args_is_help=True,
)


def _check_picture(path: Path | None) -> Path | None:
    from dares.bench.plot import check_plot

    if path is not None:
        check_plot(path)
    return check_folder(path)


EVERY_SCHEME = "standard,attnres_block,attnres,delta_block,delta,ddl,hyper,mhc,dense"
Layers = Annotated[str, typer.Option(help="Numbers of layers, with commas between them.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; each times every row once.")]
Schemes = Annotated[str, typer.Option(help="Presets with commas between them, standard first.")]
Width = Annotated[int, typer.Option(min=1, help="Width of the stream.")]
Heads = Annotated[int, typer.Option(min=1, help="Attention heads.")]
Batch = Annotated[int, typer.Option(min=1, help="Rows a batch.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens a row.")]
# Both are looked at before anything is measured.
Json = Annotated[
    Path | None,
    typer.Option("--json", callback=check_folder, help="Write the rows to this file too."),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", callback=_check_picture, help="Draw them into this PNG too."),
]


@app.command("step")
def bench_step_command(
    layers: Layers = "12,24",
    schemes: Schemes = EVERY_SCHEME,
    rounds: Rounds = 9,
    width: Width = 256,
    heads: Heads = 4,
    batch: Batch = 4,
    tokens: Tokens = 256,
    out: Json = None,
    plot: Plot = None,
) -> None:
    """A whole training step of each scheme, relative to standard."""
    from dares.bench import run

    shape = _shape(width=width, heads=heads, batch=batch, tokens=tokens)
    rows = run.bench_step(shape, _numbers(layers), _schemes(schemes), rounds, _watch)
    _show(rows, out, plot)


@app.command("op")
def bench_op_command(
    layers: Layers = "24",
    scheme: Annotated[str, typer.Option(help="The preset whose mixing is measured.")] = "delta",
    rounds: Rounds = 9,
    width: Width = 256,
    batch: Batch = 4,
    tokens: Tokens = 256,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Also under torch.compile, which takes minutes.")
    ] = False,
    out: Json = None,
    plot: Plot = None,
) -> None:
    """Depth mixing alone, forward and backward, relative to the grouped backend."""
    from dares.bench import run

    shape = _shape(width=width, batch=batch, tokens=tokens)
    (name,) = _schemes(scheme, with_standard=False)
    rows = run.bench_op(shape, _numbers(layers), name, rounds, compiled=compiled, watch=_watch)
    _show(rows, out, plot)


@app.command("decode")
def bench_decode_command(
    layers: Layers = "30",
    schemes: Schemes = EVERY_SCHEME,
    rounds: Rounds = 9,
    width: Width = 576,
    heads: Heads = 9,
    out: Json = None,
    plot: Plot = None,
) -> None:
    """Greedy decoding with a KV cache, milliseconds a token and tokens a second."""
    from dares.bench import run

    shape = _shape(width=width, heads=heads, vocabulary=49152)
    rows = run.bench_decode(shape, _numbers(layers), _schemes(schemes), rounds, _watch)
    _show(rows, out, plot)


@app.command("memory")
def bench_memory_command(
    layers: Layers = "12,24,48",
    schemes: Schemes = EVERY_SCHEME,
    width: Width = 256,
    heads: Heads = 4,
    batch: Batch = 4,
    tokens: Tokens = 256,
    peak: Annotated[
        bool, typer.Option(help="Also the peak of a process's memory, each in a new process.")
    ] = True,
    out: Json = None,
    plot: Plot = None,
) -> None:
    """Bytes kept for the backward and peak memory, and how they grow with depth."""
    from dares.bench import run

    shape = _shape(width=width, heads=heads, batch=batch, tokens=tokens)
    names = _schemes(schemes)
    rows = run.bench_memory(shape, _numbers(layers), names, peak=peak, watch=_watch)
    _show(rows, out, plot)


def _shape(**sizes: int) -> Shape:
    from dares.bench.workloads import Shape

    return Shape(**sizes)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ValueError(f"--layers must be whole numbers with commas between them, got {text!r}")
    return numbers


def _schemes(text: str, *, with_standard: bool = True) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PRESETS:
            raise ValueError(unknown_name("preset", name, PRESETS))
    return names if not with_standard or names[0] == "standard" else ["standard", *names]


def _watch(steps: range) -> Iterator[int]:
    yield from track(steps, description="measuring", console=Console(stderr=True))


def _show(rows: list[Row], json_file: Path | None, picture: Path | None) -> None:
    console.print(_table(rows))
    if json_file is not None:
        json_file.write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n")
    if picture is not None:
        from dares.bench.plot import save

        save(rows, picture)


def _table(rows: list[Row]) -> Table:
    """What was measured, then how it grows, a section for each measure."""
    table = Table(pad_edge=False)
    decoding = any(row.tokens_per_second for row in rows)
    speed = ["tokens/s"] if decoding else []
    headings = ["layers", "what", "measured", *speed, "ratio", "middle half"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "what" else "right")
    last = None
    for row in rows:
        section = (row.measure, row.layers is None)
        if section != last:
            table.add_section()
            table.add_row("", f"[bold]{row.measure}{': growth' if section[1] else ''}[/bold]")
            last = section
        if row.layers is None:
            table.add_row("", row.what, f"layers^{row.value:.2f}")
            continue
        own_speed = [f"{row.tokens_per_second:.1f}"] if decoding else []
        spread = "" if row.low is None else f"{row.low:.2f} - {row.high:.2f}"
        measured = f"{row.value:.2f} {row.unit}"
        table.add_row(str(row.layers), row.what, measured, *own_speed, f"{row.ratio:.2f}", spread)
    return table
