"""Grouped depth mixing without side effects: under torch.compile, and where weights are recorded.

The small tensors are left to autograd, the large products are operators: those of operators.py, or
another set with the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from dares.ops.depth_mix import operators
from dares.ops.depth_mix.interface import (
    DepthMixer,
    MixState,
    ReadRule,
    exact_dtype,
    exact_keys,
    without_autocast,
)
from dares.ops.depth_mix.products import weigh
from dares.pytree import TensorState


@dataclass
class FunctionalGroup(TensorState):
    """What the routers of one group share."""

    index: int
    old: int  # sources that were finished when the group began
    softmax: Tensor  # [old, N, G], over the old alone
    top: Tensor  # [N, G], largest score of an old source
    total: Tensor  # [N, G], sum over the old of exp(score - top)
    sums: list[Tensor]  # [N, D] each: centred mixes of the old, one a router, and their plain sum
    node: Any  # of the sums, for a mixer that makes them again in the backward


@dataclass
class FunctionalState(MixState):
    """The sources [N, D] with their scores: scores[i] is source i's, [N, routers] by group."""

    scores: list[dict[int, Tensor]] = field(default_factory=list)
    group: FunctionalGroup | None = None


class FunctionalMixer(DepthMixer):
    """See DepthMixer and grouped.py."""

    operators: ClassVar[Any] = operators  # score, weighted_sums, combine

    def start(self, keys: Tensor, *, record: bool) -> FunctionalState:
        return FunctionalState(keys=exact_keys(keys))

    def append(self, state: Any, source: Tensor, *, next_router: int) -> None:
        flat = source.reshape(-1, source.shape[-1])
        if state.sources:
            flat = flat.to(state.sources[0].dtype)
        scores: dict[int, Tensor] = {}
        if next_router < self.routers:
            group = self.group_of[next_router]
            keys = state.keys[self.first_router[group] :].to(exact_dtype(source))
            with without_autocast(source.device.type):
                all_scores, _ = self.operators.score(flat, keys, self.plan.eps)
            pieces = all_scores.split(self.plan.groups[group:], 1)
            scores = dict(enumerate(pieces, start=group))
        state.sources.append(flat)
        state.scores.append(scores)

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
        with without_autocast(stream.device.type):
            group = self._open(state, self.group_of[router])
            column = router - self.first_router[group.index]
            young = state.sources[group.old :]
            scores = [each[group.index][:, column] for each in state.scores[group.old :]]
            if running is not None:
                running = running.reshape(-1, running.shape[-1])
                keys = state.keys[router : router + 1].to(exact_dtype(running))
                young = [*young, running]
                scores.append(self.operators.score(running, keys, self.plan.eps)[0][:, 0])
            exponents = self._exponents(group, column, scores)
            n = group.old + len(young) + self.plan.null
            weights, coefficients = _weigh(exponents, group.old, len(young), n, rule.centred)
            flat = stream.reshape(-1, stream.shape[-1])
            read = self._combine(group, column, flat, rule.keep, rule.scale * coefficients, young)
            read = read.view(stream.shape)
            if not record:
                return read, None
            old = weights[:, :1] * group.softmax[:, :, column].T
            routing = torch.cat([old, weights[:, 1:]], -1)
        return read, routing.view(*stream.shape[:-1], -1)

    def _open(self, state: FunctionalState, index: int) -> FunctionalGroup:
        """The group a router belongs to; its old sources are summed when its first router reads."""
        if state.group is None or state.group.index != index:
            scores = torch.stack([each[index] for each in state.scores])  # [old, N, G]
            top = scores.detach().amax(0)
            exponents = (scores - top).exp()
            total = exponents.sum(0)
            softmax = exponents / total
            sums, node = self._sum_old(softmax, list(state.sources))
            old = len(state.sources)
            state.group = FunctionalGroup(index, old, softmax, top, total, sums, node)
        return state.group

    def _sum_old(self, softmax: Tensor, sources: list[Tensor]) -> tuple[list[Tensor], Any]:
        """A group's sums, and their node if it is needed."""
        return list(self.operators.weighted_sums(softmax, sources)), None

    def _combine(
        self,
        group: FunctionalGroup,
        column: int,
        stream: Tensor,
        keep: float,
        coefficients: Tensor,
        young: list[Tensor],
    ) -> Tensor:
        """A site's read from the group's sums and the young sources."""
        terms = [group.sums[column], group.sums[-1], *young]
        return self.operators.combine(stream, keep, coefficients, terms)

    def _exponents(self, group: FunctionalGroup, column: int, young: list[Tensor]) -> Tensor:
        """exp(score - highest) [N, 1 + young (+ 1)], the old sources' together"""
        top = group.top[:, column]
        logits = torch.stack([top, *young, *[torch.zeros_like(top)] * self.plan.null], -1)
        exponents = (logits - logits.detach().amax(-1, keepdim=True)).exp()
        old = exponents[:, :1] * group.total[:, column : column + 1]
        return torch.cat([old, exponents[:, 1:]], -1)


def _weigh(exponents: Tensor, old: int, young: int, n: int, centred: bool) -> tuple[Tensor, Tensor]:
    """products.weigh, with the gradient of the weights alone.

    Centred coefficients differ from the others by constants, so they have the same gradient. Taken
    from how they are written, it would lose all its digits where one weight is nearly one.
    """
    weights, slopes = weigh(exponents, old, young, n, centred=False)
    if not centred:
        return weights, slopes
    with torch.no_grad():
        _, values = weigh(exponents, old, young, n, centred=True)
    return weights, values + (slopes - slopes.detach())
