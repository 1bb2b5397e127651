"""Where one pass keeps its sources and scores, and gathers their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dares.ops import workspace


class Gathered:
    """A gradient that many nodes of one backward pass add to.

    A pass is known by autograd's number of it, so that one that stopped on its way leaves nothing
    behind for the next.
    """

    def __init__(self, shape: Sequence[int], like: Tensor) -> None:
        self._shape, self._dtype, self._device = shape, like.dtype, like.device
        self._pass = -1
        self._sum: Tensor | None = None

    def sum(self) -> Tensor:
        """This pass's sum so far, to add to."""
        if self._sum is None or self._pass != torch._C._current_graph_task_id():
            self._sum = self._fresh()
            self._pass = torch._C._current_graph_task_id()
        return self._sum

    def _fresh(self) -> Tensor:
        return workspace.empty(self._shape, self._dtype, self._device).zero_()

    def peek(self) -> Tensor | None:
        """This pass's sum; None if nothing was added."""
        return self._sum if self._pass == torch._C._current_graph_task_id() else None

    def drop(self) -> None:
        """The sum has been used."""
        self._sum = None


class GatheredSlots(Gathered):
    """Gradients [slots, N, D] that are set before they are added to: nothing need be cleared."""

    def _fresh(self) -> Tensor:
        self._set: set[int] = set()
        return workspace.empty(self._shape, self._dtype, self._device)

    def add(self, slot: int, grad: Tensor, column: Tensor) -> None:
        """slot += grad * column;  grad [N, D], column [N, 1]"""
        own = self.sum()[slot]
        if slot in self._set:
            own.addcmul_(grad, column)
        else:
            torch.mul(grad, column, out=own)
            self._set.add(slot)

    def has(self, slot: int) -> bool:
        """Has it been set?"""
        return self.peek() is not None and slot in self._set

    def put(self, slot: int, grad: Tensor) -> None:
        """slot = grad"""
        self.sum()[slot].copy_(grad)
        self._set.add(slot)

    def open(self, slots: range) -> tuple[Tensor, bool]:
        """Those slots, to be added to if the second says so, else to be set."""
        buffer, unset = self.sum(), [slot for slot in slots if slot not in self._set]
        self._set.update(slots)
        if len(unset) < len(slots):
            for slot in unset:
                buffer[slot].zero_()
        return buffer[slots.start : slots.stop], len(unset) < len(slots)

    def take(self, slots: range) -> Tensor:
        """Those slots, zero where nothing was added."""
        buffer, set_before = self.open(slots)
        return buffer if set_before else buffer.zero_()


class Tape:
    """The sources of one pass [capacity, N, D] and their scores [capacity, N, R], slot by slot.

    A slot is written once. A pass that would write it again (a fork of the state, or gradient
    checkpointing running a layer a second time) goes on in a copy, from that slot on.
    """

    def __init__(
        self, keys: Tensor, shape: Sequence[int], dtype: torch.dtype, parent: Tape | None = None
    ) -> None:
        capacity, tokens, _ = shape
        self.keys, self.parent = keys, parent
        self.sources = workspace.empty(shape, dtype, keys.device)
        self.scores = workspace.empty((capacity, tokens, len(keys)), keys.dtype, keys.device)
        self.inverse_rms = keys.new_empty(capacity, tokens)
        self.first = self.count = 0
        self.d_sources = GatheredSlots(shape, keys)
        self.d_scores = Gathered(self.scores.shape, keys)
        self.d_keys: Gathered = parent.d_keys if parent else Gathered(keys.shape, keys)
        self._scratch: Tensor | None = None

    def branch(self, slot: int) -> Tape:
        """The tape to write that slot in."""
        if slot == self.count:
            return self
        other = Tape(self.keys, self.sources.shape, self.sources.dtype, self)
        for name in ("sources", "scores", "inverse_rms"):
            getattr(other, name)[:slot] = getattr(self, name)[:slot]
        other.first = other.count = slot
        return other

    def owners(self, first: int, last: int) -> list[tuple[Tape, range]]:
        """The tapes in which those slots were first written, where their gradients are gathered."""
        tape, found = self, []
        while last > first:
            while last <= tape.first and tape.parent is not None:
                tape = tape.parent
            start = max(first, tape.first)
            found.append((tape, range(start, last)))
            last = start
        return found

    def scratch(self) -> Tensor:
        """A [N, D] buffer for products: fresh memory costs more than the product."""
        if self._scratch is None:
            self._scratch = self.keys.new_empty(self.sources.shape[1:])
        return self._scratch
