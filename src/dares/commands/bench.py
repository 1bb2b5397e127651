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

from dares.commands.terminal import console
from dares.names import unknown_name
from dares.presets import PRESETS

if TYPE_CHECKING:
    from dares.bench.run import Row

app = typer.Typer(
    help="Measure depth mixing on this machine: ratios from interleaved repeats in one process.",
    no_args_is_help=True,
)
Layers = Annotated[str, typer.Option(help="Numbers of layers, with commas between them.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; each times every row once.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the rows to this file too.")]
Schemes = Annotated[str, typer.Option(help="Presets with commas between them, standard first.")]
Width = Annotated[int, typer.Option(min=1, help="Width of the stream.")]
Heads = Annotated[int, typer.Option(min=1, help="Attention heads.")]
Batch = Annotated[int, typer.Option(min=1, help="Rows a batch.")]
Tokens = Annotated[int, typer.Option(min=1, help="Tokens a row.")]


@app.command("step")
def bench_step_command(
    layers: Layers = "12,24",
    schemes: Schemes = "standard,attnres_block,attnres,delta_block,delta",
    rounds: Rounds = 9,
    width: Width = 256,
    heads: Heads = 4,
    batch: Batch = 4,
    tokens: Tokens = 256,
    out: Json = None,
) -> None:
    """A whole training step of each scheme, relative to standard."""
    from dares.bench import run, workloads

    shape = workloads.Shape(width=width, heads=heads, batch=batch, tokens=tokens)
    rows = run.bench_step(shape, _numbers(layers), _schemes(schemes), rounds, _watch)
    _show(rows, out)


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
) -> None:
    """Depth mixing alone, forward and backward, relative to the grouped backend."""
    from dares.bench import run, workloads

    shape = workloads.Shape(width=width, batch=batch, tokens=tokens)
    (name,) = _schemes(scheme, with_standard=False)
    rows = run.bench_op(shape, _numbers(layers), name, rounds, compiled=compiled, watch=_watch)
    _show(rows, out)


@app.command("decode")
def bench_decode_command(
    layers: Layers = "30",
    schemes: Schemes = "standard,attnres_block,attnres,delta_block,delta",
    rounds: Rounds = 9,
    width: Width = 576,
    heads: Heads = 9,
    out: Json = None,
) -> None:
    """Milliseconds a token of greedy decoding with a KV cache, relative to standard."""
    from dares.bench import run, workloads

    shape = workloads.Shape(width=width, heads=heads, vocabulary=49152)
    rows = run.bench_decode(shape, _numbers(layers), _schemes(schemes), rounds, _watch)
    _show(rows, out)


@app.command("memory")
def bench_memory_command(
    layers: Layers = "12,24,48",
    schemes: Schemes = "standard,attnres_block,attnres,delta_block,delta",
    width: Width = 256,
    heads: Heads = 4,
    batch: Batch = 4,
    tokens: Tokens = 256,
    out: Json = None,
) -> None:
    """Bytes kept for the backward, and how they grow with the number of layers."""
    from dares.bench import run, workloads

    shape = workloads.Shape(width=width, heads=heads, batch=batch, tokens=tokens)
    _show(run.bench_memory(shape, _numbers(layers), _schemes(schemes), _watch), out)


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


def _show(rows: list[Row], json_file: Path | None) -> None:
    table = Table(pad_edge=False)
    for heading in ("layers", "what", "measured", "ratio", "middle half of the rounds"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        spread = "" if row.low is None else f"{row.low:.2f} - {row.high:.2f}"
        ratio = "" if row.ratio != row.ratio else f"{row.ratio:.2f}"
        layers = str(row.layers) if row.layers else ""
        table.add_row(layers, row.what, f"{row.value:.2f} {row.unit}", ratio, spread)
    console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n")
