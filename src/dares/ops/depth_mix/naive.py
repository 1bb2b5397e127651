"""The formula, readable: the oracle of every test. Stacks every source at every read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from dares.ops.depth_mix.interface import (
    DepthMixer,
    MixState,
    ReadRule,
    exact_dtype,
    without_autocast,
)


def depth_mix(
    sources: Sequence[Tensor],
    key: Tensor,
    *,
    eps: float,
    null: bool = False,
    shift: float = 0.0,
    rescore: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """mix = sum_i (a_i - shift) u_i,   a = softmax_i(key . u_i / rms(u_i))

    rms(u) = sqrt(mean(u^2) + eps)

    sources  n tensors u_i, each [..., D]
    key      [D], the query times the key norm's gain
    null     one more source, zero with score zero: it takes weight and gives nothing
    shift    taken from every weight before the sum, so that a bank that sums to h can be read as
             h/n + mix with shift 1/n, which is exactly h/n at uniform weights
    rescore  changes the scores [..., n (+1)] before the softmax: what a probe does
    returns  mix [..., D] and the weights a [..., n (+1 with null)], both in float32
             (float64 for float64 sources)                                      (2605.18855)
    """
    exact = exact_dtype(sources[0])
    with without_autocast(sources[0].device.type):
        bank = torch.stack([source.to(exact) for source in sources], -2)  # [..., n, D]
        inverse_rms = (bank.square().mean(-1) + eps).rsqrt()  # [..., n]
        scores = (bank @ key.to(exact)) * inverse_rms  # [..., n]
        if null:
            scores = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1)
        if rescore is not None:
            scores = rescore(scores)
        weights = scores.softmax(-1)
        shifted = weights[..., : len(sources)] - shift
        mix = (shifted.unsqueeze(-2) @ bank).squeeze(-2)
        return mix, weights


class NaiveMixer(DepthMixer):
    """Remembers the sources and applies the formula at each read: O(S^2) memory and reads."""

    def rescore(self, router: int, scores: Tensor) -> Tensor:
        """The scores [..., n] as the softmax gets them; a probe's mixer says otherwise."""
        return scores

    def append(self, state: MixState, source: Tensor, *, next_router: int) -> None:
        state.sources.append(source)

    def read(
        self,
        state: MixState,
        router: int,
        stream: Tensor,
        rule: ReadRule,
        *,
        running: Tensor | None,
        record: bool,
    ) -> tuple[Tensor, Tensor | None]:
        sources = state.sources if running is None else [*state.sources, running]
        n = len(sources) + self.plan.null
        mix, weights = depth_mix(
            sources,
            state.keys[router],
            eps=self.plan.eps,
            null=self.plan.null,
            shift=1 / n if rule.centred else 0.0,
            rescore=partial(self.rescore, router),
        )
        routed = rule.scale * mix
        if rule.keep:
            routed = rule.keep * stream.to(mix.dtype) + routed
        return routed.to(stream.dtype), weights if record else None
