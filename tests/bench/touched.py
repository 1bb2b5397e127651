"""What a pass really touches: the tensors that go into and come out of every operation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# what they return is not written, or what they are given is not read, whatever the schema says
NOTHING = {
    aten.empty,
    aten.empty_like,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
    aten._unsafe_view,
}
READS_NOTHING = {aten.zeros_like, aten.ones_like, aten.full_like, aten.new_zeros, aten.zero_}
OVERWRITES = {aten.copy_, aten.zero_, aten.fill_}


class Touched(TorchDispatchMode):
    """Counts elements by dtype, read and written.

    An operation reads its inputs and writes its outputs once; in place it does both, unless it only
    overwrites. Views touch nothing, an expanded axis is one element. Gradients that autograd's
    engine adds up are seen too: they are ordinary operations, and the CPU's backward runs on the
    thread that asked for it, where this mode is active.
    """

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.tokens, self.width = tokens, width
        self.all_bytes = 0
        self.vectors: Counter[tuple[str, torch.dtype]] = Counter()  # a token

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._count(func, args, kwargs, result)
        return result

    def _count(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        packet, returns = func.overloadpacket, func._schema.returns
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        if view or packet in NOTHING or (packet is aten.copy_ and _same(args[0], args[1])):
            return
        for argument, value in _arguments(func, args, kwargs):
            in_place = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(value):
                overwritten = in_place and (packet in OVERWRITES or argument.is_out)
                if not overwritten and packet not in READS_NOTHING:
                    self._add("read", tensor)
                if in_place:
                    self._add("written", tensor)
        for returned, value in zip(returns, _as_tuple(result, len(returns)), strict=True):
            if returned.alias_info is None:
                for tensor in _tensors(value):
                    self._add("written", tensor)

    def _add(self, what: str, tensor: Tensor) -> None:
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        elements = math.prod(size for size, stride in pairs if stride)
        self.all_bytes += elements * tensor.element_size()
        if self.width in tensor.shape and elements % (self.tokens * self.width) == 0:
            self.vectors[what, tensor.dtype] += elements // (self.tokens * self.width)


def _same(target: Tensor, source: Tensor) -> bool:
    """Is it one piece of memory? (`x[i] += y` ends in such a copy, which torch leaves out.)"""
    return target.data_ptr() == source.data_ptr() and target.stride() == source.stride()


def _arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    for index, argument in enumerate(func._schema.arguments):
        if index < len(args):
            yield argument, args[index]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, (list, tuple)):
        return [each for each in value if isinstance(each, Tensor)]
    return [value] if isinstance(value, Tensor) else []


def _as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    return (result,) if count == 1 else tuple(result) if count else ()
