"""Grouped depth mixing for eager mode: gradients by hand, gathered where the sources are.

Four kinds of nodes, each with the formula of its gradient:

    Begin      the routers' keys
    Store      a source: copied into the tape, scored against all later routers at once
    OpenGroup  the old sources' softmax and sums, for all routers of a group
    Read       a site's read: two of the sums, the young sources, the running one

The nodes hand each other no gradients for keys, sources, scores and sums, only the order: each adds
its part to the tape in place, and the node that owns a thing takes the sum, since autograd runs it
last. So a gradient is written where it is needed, not passed from site to site.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dares.ops import workspace
from dares.ops.depth_mix import products
from dares.ops.depth_mix.interface import (
    DepthMixer,
    MixState,
    ReadRule,
    exact_dtype,
    exact_keys,
    without_autocast,
)
from dares.ops.depth_mix.tape import Gathered, Tape


class Begin(torch.autograd.Function):
    """keys [R, D]: their gradient is what sources and reads have gathered."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, keys: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.tape = tape
        return keys.view_as(keys)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None) -> tuple[None, Tensor | None]:
        gathered = ctx.tape.d_keys.peek()
        return None, None if gathered is None else gathered.clone()


class Store(torch.autograd.Function):
    """Copy a source [N, D] into the tape; Z = u K^T / rms(u) for the routers from `router` on.

    du = gathered + (dZ / rms) K - u (dZ . Z) / (D rms^2),   dK += (dZ / rms)^T u
    """

    @staticmethod
    def forward(
        ctx: Any, tape: Tape, router: int, eps: float, keys: Tensor, source: Tensor
    ) -> Tensor:
        ctx.set_materialize_grads(False)
        slot = tape.count
        tape.count += 1
        ctx.tape, ctx.slot, ctx.router, ctx.dtype = tape, slot, router, source.dtype
        # .data: earlier slots have been saved for the backward, and this does not touch them
        kept = tape.sources.data[slot]
        kept.copy_(source)
        if router < len(tape.keys):
            scores, inverse_rms = products.score(source, tape.keys[router:], eps)
            tape.scores.data[slot, :, router:] = scores
            tape.inverse_rms.data[slot] = inverse_rms
        ctx.save_for_backward(kept, tape.scores.data[slot, :, router:], tape.inverse_rms[slot])
        return kept.view_as(kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None) -> tuple[Any, ...]:
        tape, slot, router = ctx.tape, ctx.slot, ctx.router
        if tape.d_sources.peek() is None:
            return None, None, None, None, None
        source, scores, inverse_rms = ctx.saved_tensors
        d_source = products.score_gradients(
            tape.d_scores.sum()[slot, :, router:],
            source,
            tape.keys[router:],
            scores,
            inverse_rms,
            d_source=tape.d_sources.sum()[slot],
            d_keys=tape.d_keys.sum()[router:],
        )
        if slot == tape.first:  # autograd comes here last of all the tape's sources
            tape.d_sources.drop()
            tape.d_scores.drop()
        return None, None, None, None, d_source.to(ctx.dtype)


class OldSources:
    """What a group's routers share: softmax and sums over the sources finished when it began.

    The sums are as large as the group's own sources, so they are not kept for the backward: the
    first site that asks makes them again, and OpenGroup's backward, which comes after all sites,
    drops them.
    """

    def __init__(self, index: int, count: int, routers: slice) -> None:
        self.index, self.count, self.routers = index, count, routers
        self.top: Tensor
        self.total: Tensor
        self.d_sums: Gathered  # [G + 1, N, D]: of the centred mixes, one a router, and the sum
        self.d_total: Gathered
        self.node: Any = None
        self._saved: tuple[Tensor, ...] | None = None
        self._again: Tensor | None = None

    def saved(self) -> tuple[Tensor, ...]:
        """What OpenGroup saved; unpacked once, since checkpointing allows no more."""
        if self._saved is None:
            self._saved = self.node.saved_tensors
        return self._saved

    def softmax(self) -> Tensor:
        """[old, N, G], from the scores"""
        scores, _, top, total = self.saved()
        return (scores - top).exp_().div_(total)

    def sums_again(self) -> Tensor:
        """The sums, made once a backward."""
        if self._again is None:
            softmax, (_, kept, *_) = self.softmax(), self.saved()
            shape = (kept.shape[1], softmax.shape[-1] + 1, kept.shape[2])
            self._again = workspace.empty(shape, softmax.dtype, softmax.device)
            products.weighted_sums(softmax, kept, out=self._again)
        return self._again

    def drop(self) -> None:
        """Forget what was unpacked, made again and gathered."""
        self._saved = self._again = None
        self.d_sums.drop()
        self.d_total.drop()


class OpenGroup(torch.autograd.Function):
    """p_g = softmax_i(Z_gi),   M_g = sum_i (p_gi - 1/n) u_i,   and sum_i u_i

    dz_gi = p_gi (dp_gi - sum_j p_gj dp_gj + total_g dtotal_g)
    """

    @staticmethod
    def forward(ctx: Any, tape: Tape, old: OldSources, *sources: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.tape, ctx.old = tape, weakref.ref(old)  # a cycle would keep all alive until collection
        scores = tape.scores[: old.count, :, old.routers]
        kept = tape.sources[: old.count]
        softmax, old.top, old.total = products.softmax_over_old(scores)
        sums = products.weighted_sums(softmax, kept)
        tokens, routers, width = sums.shape
        old.d_sums = Gathered((routers, tokens, width), sums)
        old.d_total = Gathered(old.total.shape, sums)
        old.node = ctx
        ctx.save_for_backward(scores, kept, old.top, old.total)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None) -> tuple[Any, ...]:
        old, nothing = ctx.old(), [None] * len(ctx.needs_input_grad)
        d_sums = old.d_sums.peek() if old is not None else None
        if d_sums is None:
            return tuple(nothing)
        softmax, (_, kept, _, total) = old.softmax(), old.saved()
        owners = ctx.tape.owners(0, old.count)
        d_sources = ctx.tape.d_sources.sum()[: old.count]
        if len(owners) > 1:  # a fork: the older slots' gradients belong to the tape it came from
            d_sources = torch.zeros_like(d_sources)
        d_softmax = products.weighted_sums_gradients(d_sums, softmax, kept, d_sources=d_sources)
        common = old.d_total.sum() * total - (softmax * d_softmax).sum(0)
        d_scores = d_softmax.add_(common).mul_(softmax)
        for tape, slots in owners:
            if len(owners) > 1:
                tape.d_sources.sum()[slots] += d_sources[slots]
            tape.d_scores.sum()[slots, :, old.routers] += d_scores[slots]
        old.drop()
        return tuple(nothing)


@dataclass
class Site:
    """One read: who reads, and by which rule."""

    tape: Tape
    old: OldSources
    router: int
    young: range  # slots
    eps: float
    null: bool
    keep: float
    scale: float  # times the gate, if there is one
    centred: bool

    @property
    def column(self) -> int:
        """The router's place in its group."""
        return self.router - self.old.routers.start

    def terms(self, sums: Tensor, running: Tensor | None) -> list[Tensor]:
        """In the order of the coefficients: the router's mix, the plain sum, the young."""
        found = [sums[:, self.column], sums[:, -1]]
        found += [self.tape.sources[slot] for slot in self.young]
        return found if running is None else [*found, running]


class Read(torch.autograd.Function):
    """r = keep * h + s (w M_g + b sum_old + sum_young c_j u_j),  weights and coefficients: `weigh`

    With d the gradient of the coefficients (dr . term, times s), dw = d_mix + d_sum / n_old, and
    delta = w dw + sum_j a_j d_j:   dz_j = a_j (d_j - delta),   dtotal = w (dw - delta) / total.
    """

    @staticmethod
    def forward(
        ctx: Any,
        site: Site,
        stream: Tensor,
        running: Tensor | None,
        gate: Tensor | None,
        sums: Tensor,
        *young: Tensor,
    ) -> Tensor:
        tape, old, column = site.tape, site.old, site.column
        logits = [old.top[:, column : column + 1]]
        if site.young:
            slots = slice(site.young.start, site.young.stop)
            logits.append(tape.scores[slots, :, site.router].T)
        key, inverse_rms, terms = tape.keys[site.router], None, len(site.young)
        if running is not None:
            score, inverse_rms = products.score(running, key.unsqueeze(0), site.eps)
            logits.append(score)
            terms += 1
        if site.null:
            logits.append(torch.zeros_like(logits[0]))
        joined = torch.cat(logits, -1)
        exponents = (joined - joined.amax(-1, keepdim=True)).exp_()
        exponents[:, :1] *= old.total[:, column : column + 1]
        n = old.count + terms + site.null
        weights, coefficients = products.weigh(exponents, old.count, terms, n, centred=site.centred)
        scaled = coefficients * (site.scale if gate is None else gate)
        ctx.site = site
        ctx.save_for_backward(
            weights,
            coefficients,
            gate,
            running,
            inverse_rms,
            None if running is None else score,
            None if old.node is not None else sums,
        )
        return products.combine(stream, site.keep, scaled, site.terms(sums, running))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        site: Site = ctx.site
        weights, coefficients, gate, running, inverse_rms, score, sums = ctx.saved_tensors
        tape, old, column = site.tape, site.old, site.column
        exact = grad.to(coefficients.dtype)
        d_coefficients = _dots(
            exact, site.terms(old.sums_again() if sums is None else sums, running), tape.scratch()
        )
        d_gate = None if gate is None else (d_coefficients * coefficients).sum().to(gate.dtype)
        scale = site.scale if gate is None else gate
        scaled, d = (coefficients * scale).unsqueeze(-1), d_coefficients.mul_(scale)

        young, terms = len(site.young), d.shape[-1] - 2
        w, a = weights[:, :1], weights[:, 1 : 1 + terms]
        d_w = d[:, :1] + d[:, 1:2] / old.count
        delta = w * d_w + (a * d[:, 2:]).sum(-1, keepdim=True)
        d_scores = a * (d[:, 2:] - delta)

        if sums is None:
            d_sums = old.d_sums.sum()
            d_sums[column].addcmul_(exact, scaled[:, 0])
            d_sums[-1].addcmul_(exact, scaled[:, 1])
            total = old.total[:, column : column + 1]
            old.d_total.sum()[:, column : column + 1] += w * (d_w - delta) / total
        first = site.young.start
        for owner, slots in tape.owners(first, first + young):
            part = slice(slots.start - first, slots.stop - first)
            owner.d_scores.sum()[slots, :, site.router] += d_scores[:, part].T
            for slot in range(slots.start, slots.stop):
                owner.d_sources.sum()[slot].addcmul_(exact, scaled[:, 2 + slot - first])
        d_running = None
        if running is not None:
            d_running = exact * scaled[:, -1]
            d_running = products.score_gradients(
                d_scores[:, -1:],
                running,
                tape.keys[site.router : site.router + 1],
                score,
                inverse_rms,
                d_source=d_running,
                d_keys=tape.d_keys.sum()[site.router : site.router + 1],
            )
            d_running = d_running.to(running.dtype)
        d_stream = grad if site.keep == 1 else grad * site.keep if site.keep else None
        return None, d_stream, d_running, d_gate, None, *[None] * young


def _dots(grad: Tensor, terms: list[Tensor], scratch: Tensor) -> Tensor:
    """grad . term for each term: [N, k]"""
    dots = grad.new_empty(len(terms), grad.shape[0])
    for dot, term in zip(dots, terms, strict=True):
        torch.sum(torch.mul(grad, term, out=scratch), -1, out=dot)
    return dots.T


# -- the mixer -----------------------------------------------------------------------------------


class Kept(list):
    """A list that is no pytree: its tensors pass no border of a layer.

    Their gradients are gathered on the tape, so FSDP, say, need not carry them from layer to layer.
    """


@dataclass
class GatheredState(MixState):
    """The nodes of the sources, and the tape that holds what they stand for."""

    tape: Tape | None = None
    begin: list[Tensor] = field(default_factory=Kept)  # the keys' node
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
            site = Site(
                tape=state.tape,
                old=old,
                router=router,
                young=range(old.count, len(state.sources)),
                eps=self.plan.eps,
                null=self.plan.null,
                keep=rule.keep,
                scale=1.0 if isinstance(rule.scale, Tensor) else rule.scale,
                centred=rule.centred,
            )
            if running is not None:
                running = running.reshape(-1, running.shape[-1])
            flat = stream.reshape(-1, stream.shape[-1])
            young = state.sources[old.count :]
            read = Read.apply(site, flat, running, gate, *state.sums, *young)
        return read.view(stream.shape), None

    def _open(self, state: GatheredState, index: int) -> OldSources:
        """The group a router belongs to; its old sources are summed when its first router reads."""
        if state.old is None or state.old.index != index:
            first = self.first_router[index]
            routers = slice(first, first + self.plan.groups[index])
            old = OldSources(index, len(state.sources), routers)
            sums = OpenGroup.apply(state.tape, old, *state.sources)
            if not sums.requires_grad:
                old.node = None  # it has saved nothing to make the sums from
            state.old, state.sums = old, Kept([sums])
        return state.old
