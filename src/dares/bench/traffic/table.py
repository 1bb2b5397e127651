"""The count as tables: every design beside the others, at several depths."""

from __future__ import annotations

from collections.abc import Callable

from dares.bench.traffic.bank import SCHEMES, Bank, bank_of, scheme_itself
from dares.bench.traffic.grouped import grouped
from dares.bench.traffic.moved import Pass
from dares.bench.traffic.one_read import naive, one_read, one_read_autograd
from dares.bench.traffic.triton import triton
from dares.names import unknown_name

DESIGNS: dict[str, Callable[[Bank, bool], Pass]] = {
    "naive": naive,
    "one read a site": one_read,
    "the same, autograd adds": one_read_autograd,
    "grouped": grouped,
    "triton": triton,
}
LAYERS = (24, 48, 96)
WIDTH = 1024
HALF_BYTES = 2


def traffic(design: str, scheme: str, layers: int, *, half: bool = False) -> Pass:
    """What a design moves in one pass; half: is the model in half precision?"""
    if design not in DESIGNS:
        raise ValueError(unknown_name("design", design, DESIGNS))
    bank = bank_of(scheme, layers)
    return DESIGNS[design](bank, half) + scheme_itself(bank)


def vectors_table() -> str:
    """Vectors a token in float32, forward and backward, as Markdown."""

    def cell(design: str, scheme: str, layers: int) -> str:
        found = traffic(design, scheme, layers)
        return f"{found.forward.vectors:,} + {found.backward.vectors:,}"

    return _table(cell)


def bytes_table() -> str:
    """MiB a token in half precision, forward and backward together, as Markdown."""

    def cell(design: str, scheme: str, layers: int) -> str:
        moved = traffic(design, scheme, layers, half=True).both
        return f"{moved.bytes(WIDTH, HALF_BYTES) / 2**20:.1f}"

    return _table(cell)


def _table(cell: Callable[[str, str, int], str]) -> str:
    lines = [["scheme", "L", *DESIGNS], ["---", "--:", *["--:"] * len(DESIGNS)]]
    for scheme in SCHEMES:
        for layers in LAYERS:
            cells = [cell(design, scheme, layers) for design in DESIGNS]
            lines.append([f"`{scheme}`", str(layers), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
