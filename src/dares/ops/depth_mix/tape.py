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
            self._sum = workspace.empty(self._shape, self._dtype, self._device).zero_()
            self._pass = torch._C._current_graph_task_id()
        return self._sum

    def peek(self) -> Tensor | None:
        """This pass's sum; None if nothing was added."""
        return self._sum if self._pass == torch._C._current_graph_task_id() else None

    def drop(self) -> None:
        """The sum has been used."""
        self._sum = None


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
        self.d_sources = Gathered(shape, keys)
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

    def owners(self, first: int, last: int) -> list[tuple[Tape, slice]]:
        """The tapes in which those slots were first written, where their gradients are gathered."""
        tape, found = self, []
        while last > first:
            while last <= tape.first and tape.parent is not None:
                tape = tape.parent
            start = max(first, tape.first)
            found.append((tape, slice(start, last)))
            last = start
        return found

    def scratch(self) -> Tensor:
        """A [N, D] buffer for products: fresh memory costs more than the product."""
        if self._scratch is None:
            self._scratch = self.keys.new_empty(self.sources.shape[1:])
        return self._scratch
