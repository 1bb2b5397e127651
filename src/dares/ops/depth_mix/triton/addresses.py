"""Tables of addresses: a kernel reads many tensors where they are, without a copy of them.

A table is written by a kernel, which is given the tensors as arguments: nothing waits for the
device, and a CUDA graph that records the launch keeps the addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dares.ops.depth_mix.triton.launch import Launch

AT_ONCE = 32  # addresses a launch


class Addresses(NamedTuple):
    """Where tensors [N, D] of one dtype lie: the first of them, and the addresses of all."""

    first: Tensor
    table: Tensor
    unit: int  # bytes: every distance between them is a multiple of it


@triton.jit
def write_addresses(table: tl.tensor, tensors: tl.tensor) -> None:
    """table[i] = the address of tensors[i]"""
    for i in tl.static_range(len(tensors)):
        tl.store(table + i, tensors[i].to(tl.int64))


@triton.jit
def row_pointers(
    first: tl.tensor,
    table: tl.tensor,
    place: tl.tensor,
    count: tl.tensor,
    unit: tl.constexpr,
) -> tl.tensor:
    """Pointers to the beginnings of the tensors at those places of the table.

    Written as distances from the first, in units, so that the compiler sees how they are aligned
    and reads 16 bytes at a time.
    """
    size: tl.constexpr = first.dtype.element_ty.primitive_bitwidth // 8
    address = tl.load(table + place, mask=place < count, other=0)
    return first + (address - first.to(tl.int64)) // unit * (unit // size)


def table_launch(table: Tensor, tensors: Sequence[Tensor]) -> Launch:
    """The launch that writes AT_ONCE addresses."""
    return Launch(write_addresses, (1,), {"table": table, "tensors": tuple(tensors)}, {}, warps=1)


def addresses_of(tensors: Sequence[Tensor]) -> Addresses:
    """The table of contiguous tensors of one shape and dtype."""
    first = tensors[0]
    padded = [*tensors, *[first] * (-len(tensors) % AT_ONCE)]
    table = torch.empty(len(padded), dtype=torch.int64, device=first.device)
    for start in range(0, len(padded), AT_ONCE):
        table_launch(table[start:], padded[start : start + AT_ONCE]).run()
    distances = {tensor.data_ptr() - first.data_ptr() for tensor in tensors}
    aligned = all(distance % 16 == 0 for distance in distances)
    return Addresses(first, table, 16 if aligned else first.element_size())
