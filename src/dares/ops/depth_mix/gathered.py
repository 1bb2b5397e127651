"""Grouped depth mixing for eager mode, by nodes whose gradients are written by hand (nodes.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from dares.ops.depth_mix.interface import (
    DepthMixer,
    MixState,
    ReadRule,
    exact_dtype,
    exact_keys,
    without_autocast,
)
from dares.ops.depth_mix.nodes import Begin, OldSources, OpenGroup, Read, Site, Store
from dares.ops.depth_mix.tape import Tape

FEW_SOURCES = 8  # measured on a CPU: up to here sums of old sources cost more than they save


class Kept(list):
    """A list that is no pytree: its tensors pass no border of a layer.

    Their gradients are gathered on the tape, so FSDP, say, need not carry them from layer to layer.
    """


@dataclass
class GatheredState(MixState):
    """The nodes of the sources, and the tape that holds what they stand for."""

    tape: Tape | None = None
    begin: list[Tensor] = field(default_factory=Kept)  # the keys' node
    group: int = -1
    old: OldSources | None = None
    # The group's [N, G + 1, D]: here and not in `old`, which the graph keeps for the backward.
    sums: list[Tensor] = field(default_factory=Kept)


class GatheredMixer(DepthMixer):
    """See DepthMixer and grouped.py."""

    def start(self, keys: Tensor, *, record: bool) -> GatheredState:
        return GatheredState(keys=exact_keys(keys), sources=Kept())

    def append(self, state: Any, source: Tensor, *, next_router: int) -> None:
        flat = source.reshape(-1, source.shape[-1])
        if state.tape is None:
            keys = state.keys.to(exact_dtype(source))
            state.keys = keys.detach()
            state.tape = Tape(state.keys, (self.plan.sources, *flat.shape), flat.dtype)
            state.begin = Kept([Begin.apply(state.tape, keys)])
        state.tape = state.tape.branch(len(state.sources))
        with without_autocast(source.device.type):
            node = Store.apply(state.tape, next_router, self.plan.eps, *state.begin, flat)
        state.sources.append(node)

    def read(
        self,
        state: Any,
        router: int,
        stream: Tensor,
        rule: ReadRule,
        *,
        running: Tensor | None,
        record: bool,
    ) -> tuple[Tensor, Tensor | None]:
        gate = rule.scale if isinstance(rule.scale, Tensor) else None
        with without_autocast(stream.device.type):
            old = self._open(state, self.group_of[router])
            first = 0 if old is None else old.count
            site = Site(
                tape=state.tape,
                old=old,
                router=router,
                young=range(first, len(state.sources)),
                eps=self.plan.eps,
                null=self.plan.null,
                keep=rule.keep,
                scale=1.0 if isinstance(rule.scale, Tensor) else rule.scale,
                centred=rule.centred,
            )
            if running is not None:
                running = running.reshape(-1, running.shape[-1])
            flat = stream.reshape(-1, stream.shape[-1])
            sums = state.sums[0] if state.sums else None
            read = Read.apply(site, flat, running, gate, sums, *state.sources[first:])
        return read.view(stream.shape), None

    def _open(self, state: GatheredState, index: int) -> OldSources | None:
        """The group a router belongs to; its old sources are summed when its first router reads.

        A few are not worth the sums: each site reads them itself, and the group has no old ones.
        """
        if state.group != index:
            state.group, state.old, state.sums = index, None, Kept()
            if len(state.sources) > FEW_SOURCES:
                assert state.tape is not None
                first = self.first_router[index]
                routers = slice(first, first + self.plan.groups[index])
                old = OldSources(state.tape, index, len(state.sources), routers)
                sums = OpenGroup.apply(state.tape, old, *state.sources)
                if not sums.requires_grad:
                    old.node = None  # it has saved nothing to make the sums from
                state.old, state.sums = old, Kept([sums])
        return state.old
