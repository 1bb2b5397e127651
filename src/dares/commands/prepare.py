"""dares prepare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from dares.commands.terminal import check_folder, console

if TYPE_CHECKING:
    from dares.data import prepare as preparation

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files (.txt .md .py .jsonl .parquet, also .gz .zst .xz of them), folders, or Hugging "
        "Face datasets (owner/name). None: Python's standard library.",
        show_default=False,
    ),
]
TokenizerName = Annotated[
    str | None,
    typer.Option(
        help="A folder, a tokenizer.json or a name on the Hugging Face Hub. None: one is trained."
    ),
]


def prepare(
    inputs: Inputs = None,
    tokenizer: TokenizerName = None,
    vocabulary: Annotated[int, typer.Option(help="Size of a trained tokenizer.")] = 4096,
    row_tokens: Annotated[int, typer.Option(help="Tokens a row.")] = 2048,
    validation: Annotated[float, typer.Option(help="Share of documents held out.")] = 0.02,
    validation_inputs: Annotated[
        list[str] | None,
        typer.Option(help="Text to validate on instead of that share; may be repeated."),
    ] = None,
    text_field: Annotated[str, typer.Option(help="Where .jsonl and tables keep text.")] = "text",
    limit: Annotated[int | None, typer.Option(help="Only the first so many documents.")] = None,
    config: Annotated[
        str | None, typer.Option(help="Configuration of a Hugging Face dataset.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split of a Hugging Face dataset.")] = "train",
    revision: Annotated[
        str | None, typer.Option(help="Revision of a Hugging Face dataset.")
    ] = None,
    eos: Annotated[str | None, typer.Option(help="The token that ends a document.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where to keep it: else $DARES_CACHE or ~/.cache/dares.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--json", callback=check_folder, help="Write the figures to this file too."),
    ] = None,
) -> None:
    """Tokenize text and pack it into rows for training; the same inputs are prepared once."""
    from dares.data.prepare import prepare as prepare_data

    with _bars() as progress:
        data = prepare_data(
            inputs or (),
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            row_tokens=row_tokens,
            validation=validation,
            validation_inputs=validation_inputs or (),
            cache=cache,
            limit=limit,
            text_field=text_field,
            config=config,
            split=split,
            revision=revision,
            eos=eos,
            progress=progress,
        )
    _show(data.summary())
    if out is not None:
        out.write_text(json.dumps(data.summary(), indent=1) + "\n")


@contextmanager
def _bars() -> Iterator[preparation.Progress]:
    """One bar a stage, on a terminal only."""
    stderr = Console(stderr=True)
    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    ) as bars:
        stages: dict[str, TaskID] = {}

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done)

        yield progress


def _show(figures: dict[str, Any]) -> None:
    table = Table(show_header=False, pad_edge=False)
    megabytes = figures["text_bytes"] / 1e6
    table.add_row("documents", f"{figures['documents']:,} ({megabytes:,.1f} MB of text)")
    table.add_row(
        "tokens", f"{figures['tokens']:,} ({figures['bytes_per_token']:.2f} bytes a token)"
    )
    for split in ("train", "validation"):
        rows, tokens = figures[f"{split}_rows"], figures[f"{split}_tokens"]
        table.add_row(split, f"{rows:,} rows of {figures['row_tokens']:,} ({tokens:,} tokens)")
    table.add_row("vocabulary", f"{figures['vocabulary']:,}")
    for name, what in (
        ("empty_documents", "left out: nothing in them"),
        ("replaced_bytes", "not UTF-8, replaced"),
        ("skipped_files", "of other kinds, not read"),
    ):
        if figures[name]:
            table.add_row(name.replace("_", " "), f"{figures[name]:,} {what}")
    speed = f"{figures['megabytes_per_second']:.1f} MB/s"
    table.add_row("made", "before, and reused" if figures["reused"] else f"now, at {speed}")
    console.print(table)
    console.print(f"where: {figures['path']}", soft_wrap=True, highlight=False)
