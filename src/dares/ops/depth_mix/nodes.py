"""The nodes of the gathered mixer: gradients by hand, gathered where the sources are.

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
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dares.ops import workspace
from dares.ops.depth_mix import products
from dares.ops.depth_mix.tape import Gathered, GatheredSlots, Tape


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
            d_source=tape.d_sources.take(range(slot, slot + 1))[0],
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

    def __init__(self, tape: Tape, index: int, count: int, routers: slice) -> None:
        self.tape, self.index, self.count, self.routers = tape, index, count, routers
        self.top: Tensor
        self.total: Tensor
        # From each router's site: the gradient of its read [G, N, D], and what the mix and the sum
        # are times in it [2, G, N]. Products with them wait for the group's end, all at once.
        self.d_reads: GatheredSlots
        self.factors: Gathered
        self.d_total: Gathered  # [G, N]
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

    def gather(self, column: int, d_read: Tensor, factors: Tensor, d_total: Tensor) -> None:
        """Take a site's part: the gradient of its read [N, D], the factors [2, N], d total [N]."""
        if self.d_reads.has(column):  # a site that was read twice
            self.spread(slice(column, column + 1), d_read[None], factors[:, None], d_total[None])
            return
        self.d_reads.put(column, d_read)
        self.factors.sum()[:, column] = factors
        self.d_total.sum()[column] = d_total

    def spread(self, columns: slice, d_reads: Tensor, factors: Tensor, d_total: Tensor) -> None:
        """Add those routers' parts to the gradients of the old sources and of their scores.

        d_reads [K, N, D], factors [2, K, N], d_total [K, N]
        dz_gi = p_gi (dp_gi - sum_j p_gj dp_gj + total_g dtotal_g)
        """
        softmax, (_, kept, _, total) = self.softmax()[..., columns], self.saved()
        of_mix, of_sum = factors.transpose(1, 2)  # [N, K] each
        weights = ((softmax - 1 / self.count) * of_mix + of_sum).permute(1, 2, 0)  # [N, K, n]
        d_softmax = torch.empty_like(softmax)
        owners = [(tape, slots, slice(slots.start, slots.stop)) for tape, slots in self.owners()]
        for tape, slots, at in owners:
            d_sources, add = tape.d_sources.open(slots)
            d_softmax[at] = products.products_with(
                d_reads, weights[..., at], kept[at], d_sources=d_sources, add=add
            )
        d_softmax *= of_mix
        common = d_total.T * total[:, columns] - (softmax * d_softmax).sum(0)
        d_scores = d_softmax.add_(common).mul_(softmax)
        for tape, _, at in owners:
            tape.d_scores.sum()[at, :, self.routers][..., columns] += d_scores[at]

    def owners(self) -> list[tuple[Tape, range]]:
        """Where the old sources' gradients are gathered."""
        return self.tape.owners(0, self.count)

    def drop(self) -> None:
        """Forget what was unpacked, made again and gathered."""
        self._saved = self._again = None
        self.d_reads.drop()
        self.factors.drop()
        self.d_total.drop()


class OpenGroup(torch.autograd.Function):
    """p_g = softmax_i(Z_gi),   M_g = sum_i (p_gi - 1/n) u_i,   and sum_i u_i"""

    @staticmethod
    def forward(ctx: Any, tape: Tape, old: OldSources, *sources: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.old = weakref.ref(old)  # a cycle would keep all alive until collection
        scores = tape.scores[: old.count, :, old.routers]
        kept = tape.sources[: old.count]
        softmax, old.top, old.total = products.softmax_over_old(scores)
        sums = products.weighted_sums(softmax, kept)
        tokens, routers, width = scores.shape[1], scores.shape[2], sums.shape[2]
        old.d_reads = GatheredSlots((routers, tokens, width), sums)
        old.factors = Gathered((2, routers, tokens), sums)
        old.d_total = Gathered((routers, tokens), sums)
        old.node = ctx
        ctx.save_for_backward(scores, kept, old.top, old.total)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None) -> tuple[Any, ...]:
        old = ctx.old()
        if old is not None and old.d_reads.peek() is not None:
            routers = range(old.top.shape[-1])
            d_reads = old.d_reads.take(routers)
            old.spread(slice(None), d_reads, old.factors.sum(), old.d_total.sum())
            old.drop()
        return (None,) * len(ctx.needs_input_grad)


@dataclass
class Site:
    """One read: who reads, and by which rule."""

    tape: Tape
    old: OldSources | None
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
        assert self.old is not None
        return self.router - self.old.routers.start

    @property
    def young_slots(self) -> slice:
        """The young sources' places on the tape."""
        return slice(self.young.start, self.young.stop)

    def weigh(self, running_score: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights and coefficients [.., N] of this read, as `products.weigh` gives them.

        Without old sources neither has the old's rows.
        """
        tape, old, logits = self.tape, self.old, []
        if old is not None:
            logits.append(old.top[:, self.column].unsqueeze(0))
        if self.young:
            logits.append(tape.scores[self.young_slots, :, self.router])
        if running_score is not None:
            logits.append(running_score.T)
        if self.null:
            logits.append(torch.zeros_like(logits[0][:1]))
        joined = torch.cat(logits)
        terms = len(self.young) + (running_score is not None)
        if old is None:
            weights = joined.softmax(0)
            own = weights[:terms]
            return weights, own - 1 / len(weights) if self.centred else own
        exponents = joined.sub_(joined.amax(0)).exp_()
        exponents[0] *= old.total[:, self.column]
        n = old.count + terms + self.null
        found = products.weigh(exponents.T, old.count, terms, n, centred=self.centred)
        return found[0].T, found[1].T

    def terms(self, sums: Tensor | None, running: Tensor | None) -> list[Tensor]:
        """In the order of the coefficients: the router's mix, the plain sum, the young."""
        found = [] if sums is None else [sums[:, self.column], sums[:, -1]]
        found += self.tape.sources[self.young_slots].unbind()
        return found if running is None else [*found, running]

    def dots(self, grad: Tensor, sums: Tensor | None, running: Tensor | None) -> Tensor:
        """grad . term for each of the terms: [k, N]"""
        row, found = grad.unsqueeze(1), []  # [N, 1, D]
        if sums is not None:
            pair = sums[:, self.column :: sums.shape[1] - 1 - self.column]  # the mix and the sum
            found.append(torch.bmm(row, pair.transpose(1, 2)).squeeze(1).T)
        if self.young:
            young = self.tape.sources[self.young_slots].to(grad.dtype)
            found.append(torch.bmm(row, young.permute(1, 2, 0)).squeeze(1).T)
        if running is not None:
            product = torch.mul(grad, running, out=self.tape.scratch())
            found.append(product.sum(-1).unsqueeze(0))
        return torch.cat(found)


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
        sums: Tensor | None,
        *young: Tensor,
    ) -> Tensor:
        score = inverse_rms = None
        if running is not None:
            key = site.tape.keys[site.router : site.router + 1]
            score, inverse_rms = products.score(running, key, site.eps)
        weights, coefficients = site.weigh(score)
        scaled = coefficients * (site.scale if gate is None else gate)
        ctx.site = site
        made_again = site.old is None or site.old.node is not None
        ctx.save_for_backward(
            weights,
            coefficients,
            gate,
            running,
            inverse_rms,
            score,
            None if made_again else sums,
        )
        return products.combine(stream, site.keep, scaled.T, site.terms(sums, running))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        site: Site = ctx.site
        weights, coefficients, gate, running, inverse_rms, score, sums = ctx.saved_tensors
        tape, old, young = site.tape, site.old, len(site.young)
        exact = grad.to(coefficients.dtype)
        gathers = old is not None and sums is None
        d = site.dots(exact, old.sums_again() if old is not None and gathers else sums, running)
        d_gate = None if gate is None else (d * coefficients).sum().to(gate.dtype)
        scale = site.scale if gate is None else gate
        scaled, d = coefficients * scale, d.mul_(scale)

        if old is None:
            a = weights[: len(d)]
            d_scores = a * (d - (a * d).sum(0))
        else:
            w, a, own = weights[0], weights[1 : len(d) - 1], d[2:]
            d_w = d[0] + d[1] / old.count
            delta = w * d_w + (a * own).sum(0)
            d_scores = a * (own - delta)
            if gathers:
                d_total = w * (d_w - delta) / old.total[:, site.column]
                old.gather(site.column, exact, scaled[:2], d_total)
        first = site.young.start
        columns = scaled[-len(d_scores) :].unsqueeze(-1)
        for owner, slots in tape.owners(first, first + young):
            part = slice(slots.start - first, slots.stop - first)
            at = slice(slots.start, slots.stop)
            owner.d_scores.sum()[at, :, site.router] += d_scores[part]
            for slot in slots:
                owner.d_sources.add(slot, exact, columns[slot - first])
        d_running = None
        if running is not None:
            d_running = products.score_gradients(
                d_scores[-1].unsqueeze(-1),
                running,
                tape.keys[site.router : site.router + 1],
                score,
                inverse_rms,
                d_source=exact * columns[-1],
                d_keys=tape.d_keys.sum()[site.router : site.router + 1],
            ).to(running.dtype)
        d_stream = grad if site.keep == 1 else grad * site.keep if site.keep else None
        return None, d_stream, d_running, d_gate, None, *[None] * young
