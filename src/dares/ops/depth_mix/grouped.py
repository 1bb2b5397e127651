"""Linear memory, few reads, plain torch: any device.

Queries are parameters, so a source can be scored for all later routers when it appears. Routers are
read in groups: when a group begins, the sources finished by then (the old ones) are summed for all
its routers in one pass; each site then adds the few sources that came since (the young ones). With
e = exp(z - max) this is exact, the two phases of an online softmax:

    sum_i (a_i - 1/n) u_i = w * sum_old (p_i - 1/n_old) u_i + b * sum_old u_i
                            + sum_young (a_j - 1/n) u_j

    p = softmax over the old alone,  w = sum_old a_i,  b = w/n_old - 1/n

and every coefficient is exactly zero at uniform weights. (Not centred: b = w/n_old, and a_j.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dares.ops.depth_mix import operators, primitives
from dares.ops.depth_mix.interface import DepthMixer, MixState, exact_dtype, without_autocast
from dares.pytree import TensorState


class Kept(list):
    """A list that is no pytree: its tensors pass no border of a layer.

    Their gradients are gathered in the bank, so FSDP, say, need not carry them from layer to layer.
    """


@dataclass
class Group(TensorState):
    """What the routers of one group share; the statistics are one [N, G] tensor each."""

    index: int
    old: int  # sources that were finished when the group began
    top: Tensor  # largest score of an old source
    total: Tensor  # sum over the old of exp(score - top)
    softmax: Tensor  # [N, G, old], over the old alone
    sums: Tensor  # [N, G + 1, D]: centred mixes of the old, one a router, and their plain sum
    again: Any = None  # makes the sums again in the backward, which saves keeping them


@dataclass
class GroupedState(MixState):
    """The sources with their scores: scores[i] is source i's, one [N, routers] tensor a group."""

    scores: list[dict[int, Tensor]] = field(default_factory=list)
    bank: Any = None  # where the sources are kept; none under torch.compile, which keeps its own
    group: Group | None = None


class GroupedMixer(DepthMixer):
    """Each source is scored once, kept once, and read once a group and once a younger site."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self._first = [0]
        for size in plan.groups:
            self._first.append(self._first[-1] + size)
        self._group_of = [g for g, size in enumerate(plan.groups) for _ in range(size)]

    def start(self, keys: Tensor) -> GroupedState:
        exact = torch.float64 if keys.dtype == torch.float64 else torch.float32
        sources = [] if torch.compiler.is_compiling() else Kept()
        return GroupedState(keys=keys.to(exact), sources=sources)

    def append(self, state: Any, source: Tensor, *, next_router: int) -> None:
        flat = self._keep(state, source.reshape(-1, source.shape[-1]))
        scores: dict[int, Tensor] = {}
        if next_router < len(self._group_of):
            group = self._group_of[next_router]
            keys = state.keys[self._first[group] :].to(exact_dtype(source))
            with without_autocast(source.device.type):
                slot = None
                if state.bank is not None:
                    slot = primitives.Slot(state.bank, len(state.sources))
                pieces = self._score(flat, keys, slot).split(self.plan.groups[group:], 1)
            scores = dict(enumerate(pieces, start=group))
        state.sources.append(flat)
        state.scores.append(scores)

    def read(
        self,
        state: Any,
        router: int,
        stream: Tensor,
        *,
        running: Tensor | None,
        keep: float,
        scale: float | Tensor,
        centred: bool,
        record: bool,
    ) -> tuple[Tensor, Tensor | None]:
        with without_autocast(stream.device.type):
            group = self._open(state, self._group_of[router])
            column = router - self._first[group.index]
            if running is not None:
                running = running.reshape(-1, running.shape[-1])
            scores = self._young_scores(state, group, router, column, running)
            coefficients, weights = self._weigh(group, column, scores, centred=centred)
            coefficients = scale * coefficients
            read = self._combine(state, group, column, stream, keep, coefficients, running)
        routing = self._routing(group, column, weights, stream) if record else None
        return read.view(stream.shape), routing

    # -- the two phases ------------------------------------------------------------------------

    def _open(self, state: GroupedState, index: int) -> Group:
        """The group a router belongs to; its old sources are summed when its first router reads."""
        if state.group is not None and state.group.index == index:
            return state.group
        scores = torch.stack([each[index] for each in state.scores], -1)  # [N, G, old]
        softmax, top, total = self._softmax(scores)
        sums, again = self._sum(state, softmax)
        state.group = Group(index, len(state.sources), top, total, softmax, sums, again)
        return state.group

    def _young_scores(
        self, state: GroupedState, group: Group, router: int, column: int, running: Tensor | None
    ) -> Tensor | None:
        """Scores [N, young] of the sources since the group began, the running one last."""
        scores = [each[group.index][:, column] for each in state.scores[group.old :]]
        if running is not None:
            keys = state.keys[router : router + 1].to(exact_dtype(running))
            scores.append(self._score(running, keys)[:, 0])
        return torch.stack(scores, -1) if scores else None

    def _weigh(
        self, group: Group, column: int, scores: Tensor | None, *, centred: bool
    ) -> tuple[Tensor, Tensor]:
        """Coefficients of old mix, old sum and young; then weights of the old, young and null."""
        young = 0 if scores is None else scores.shape[-1]
        n = group.old + young + self.plan.null
        top, total = group.top[:, column : column + 1], group.total[:, column : column + 1]
        highest = top
        if scores is not None:
            highest = torch.maximum(highest, scores.detach().amax(-1, keepdim=True))
        if self.plan.null:
            highest = highest.clamp(min=0)
        old = (top - highest).exp() * total
        parts = [old]
        if scores is not None:
            parts.append((scores - highest).exp())
        if self.plan.null:
            parts.append((-highest).exp())
        exponents = torch.cat(parts, -1)
        everything = exponents.sum(-1, keepdim=True)
        weights = exponents / everything
        mix, rest = weights[:, :1], weights[:, 1 : 1 + young]
        if not centred:
            return torch.cat([mix, mix / group.old, rest], -1), weights
        # w/n_old - 1/n, written so that it is exactly zero where every exponent is one
        plain = (old * n - group.old * everything) / (everything * (group.old * n))
        return torch.cat([mix, plain, rest - 1 / n], -1), weights

    def _routing(self, group: Group, column: int, weights: Tensor, stream: Tensor) -> Tensor:
        """The weights over all sources, in the order of the bank."""
        old = weights[:, :1] * group.softmax[:, column]
        return torch.cat([old, weights[:, 1:]], -1).view(*stream.shape[:-1], -1)

    # -- the products --------------------------------------------------------------------------

    def _score(self, source: Tensor, keys: Tensor, slot: primitives.Slot | None = None) -> Tensor:
        if torch.compiler.is_compiling():
            return operators.score(source, keys, self.plan.eps)[0]
        return primitives.Score.apply(source, keys, self.plan.eps, slot)

    def _keep(self, state: GroupedState, source: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return source.to(state.sources[0].dtype) if state.sources else source
        if state.bank is None:
            state.bank = primitives.Bank(source.new_empty(self.plan.sources, *source.shape))
        state.bank = state.bank.branch(len(state.sources))
        return primitives.Store.apply(state.bank, source)

    def _softmax(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if torch.compiler.is_compiling():
            top = scores.detach().amax(-1)
            exponents = (scores - top.unsqueeze(-1)).exp()
            total = exponents.sum(-1)
            return exponents / total.unsqueeze(-1), top, total
        return primitives.OldSoftmax.apply(scores)

    def _sum(self, state: GroupedState, softmax: Tensor) -> tuple[Tensor, Any]:
        if torch.compiler.is_compiling():
            return operators.weighted_sums(softmax, list(state.sources)), None
        again = primitives.Sums()
        sums = primitives.WeightedSums.apply(again, state.bank, softmax, *state.sources)
        # without a gradient of their own, the sums' node keeps nothing to make them from
        return sums, again if sums.requires_grad else None

    def _combine(
        self,
        state: GroupedState,
        group: Group,
        column: int,
        stream: Tensor,
        keep: float,
        coefficients: Tensor,
        running: Tensor | None,
    ) -> Tensor:
        flat = stream.reshape(-1, stream.shape[-1])
        young = state.sources[group.old :]
        if torch.compiler.is_compiling():
            terms = [group.sums[:, column], group.sums[:, -1], *young]
            terms += [] if running is None else [running]
            return primitives.combine_forward(flat, keep, coefficients, terms)
        slots = range(group.old, group.old + len(young))
        site = primitives.Site(keep, state.bank, group.again, column, slots)
        return primitives.Combine.apply(site, flat, coefficients, group.sums, running, *young)
