"""dares convert."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dares.commands.terminal import console

if TYPE_CHECKING:
    from dares.config import SchemeConfig
    from dares.pretrained.convert import Plan
    from dares.pretrained.identity import Identity

DEFAULT = "delta_block"


def convert_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A Hugging Face folder or name, a .gguf file, or the authors' own checkpoint.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that is not there yet.")],
    scheme: Annotated[
        str | None,
        typer.Option(
            help=f"What to convert to (`dares schemes`); {DEFAULT}, unless SRC is the authors' "
            "checkpoint, which has its own.",
            show_default=False,
        ),
    ] = None,
    block: Annotated[
        int | None, typer.Option(help="Layers a block, for schemes with blocks.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a field of the scheme: merge=gate. May be repeated."),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="What to measure on. None: the first lines of Python's own library."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="float32, bfloat16 or float16. None: the source's (float32 of a .gguf)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be added; write nothing.")
    ] = False,
    with_code: Annotated[
        bool,
        typer.Option("--with-code", help="Add code: loads with trust_remote_code, without dares."),
    ] = False,
    allow_drift: Annotated[
        bool, typer.Option("--allow-drift", help="Convert even where the logits change.")
    ] = False,
) -> None:
    """Turn a pretrained checkpoint into a routed one with the same logits, measured on text."""
    from dares.names import unknown_name
    from dares.pretrained.convert import convert_checkpoint, plan_conversion
    from dares.pretrained.find import find_source
    from dares.pretrained.loading import DTYPES

    if dtype is not None and dtype not in DTYPES:
        raise ValueError(unknown_name("--dtype", dtype, DTYPES))
    given = {"block": str(block)} if block is not None else {}
    given |= dict(_split(change) for change in changes or [])
    found = find_source(source, weights=not dry_run)
    asks = scheme is not None or given or found.depth is None
    depth = _scheme_config(scheme or DEFAULT, given) if asks else None
    kind = None if dtype is None else DTYPES[dtype]
    plan = plan_conversion(found, out, depth, dtype=kind, allow_drift=allow_drift)
    _show_plan(plan)
    if dry_run:
        console.print(f"nothing is written; it would go to {out}", soft_wrap=True, highlight=False)
        return
    words = ["dares", "convert", found.name, out.name]
    for flag, value in (("--scheme", scheme), ("--block", block), ("--dtype", dtype)):
        words += [flag, str(value)] if value is not None else []
    words += [word for change in changes or [] for word in ("--set", change)]
    words += ["--text", text.name] if text is not None else []
    words += ["--with-code"] * with_code + ["--allow-drift"] * allow_drift
    measured = convert_checkpoint(
        plan,
        text=text,
        with_code=with_code,
        command=shlex.join(words),
        say=lambda message: console.print(message, soft_wrap=True, highlight=False),
    )
    _show_measured(measured)
    console.print(f"the model and its card are in {out}", soft_wrap=True, highlight=False)


def _split(change: str) -> tuple[str, str]:
    field, equals, text = change.partition("=")
    if not equals:
        raise ValueError(f"a change of a scheme's field is written field=value, got {change!r}")
    return field.strip(), text.strip()


def _scheme_config(name: str, changes: dict[str, str]) -> SchemeConfig:
    """A preset, some of its fields changed by text."""
    from dares.presets import preset
    from dares.train.settings import kinds, parse

    config = preset(name)
    known = kinds(type(config))
    # an unknown field is for `replace` to answer
    return config.replace(
        **{f: parse(f, known[f], text) if f in known else text for f, text in changes.items()}
    )


def _show_plan(plan: Plan) -> None:
    table = Table(show_header=False, pad_edge=False)
    table.add_row("source", f"{plan.source.name} ({plan.source.config.model_type})")
    fields = plan.depth.to_dict()
    shown = ", ".join(f"{name}={value}" for name, value in fields.items() if name != "scheme")
    table.add_row("scheme", f"{fields['scheme']}: {shown}" if shown else fields["scheme"])
    table.add_row("parameters", f"{plan.base_parameters:,}")
    table.add_row("added", f"{plan.added_parameters:,} ({plan.share:.3g} %)")
    for name, tensor in plan.scheme.state_dict().items():
        shape = " x ".join(map(str, tensor.shape))
        table.add_row("", f"{plan.prefix}{name}: {shape}")
    console.print(table)


def _show_measured(measured: Identity | float) -> None:
    if isinstance(measured, float):
        console.print(f"loss {measured:.6f} (the authors' code is not here to compare with)")
        return
    table = Table(show_header=False, pad_edge=False)
    table.add_row("tokens", f"{measured.tokens:,}")
    relative = f"{measured.relative_difference:.3g} of the largest"
    table.add_row("largest logit difference", f"{measured.difference:.3g} ({relative})")
    table.add_row("loss before, after", f"{measured.loss_before:.6f}, {measured.loss_after:.6f}")
    table.add_row("mean KL divergence", f"{measured.kl:.3g}")
    console.print(table)
