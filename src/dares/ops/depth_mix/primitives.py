"""What grouped depth mixing is made of, each product with its gradient by hand.

    score          Z = (u K^T) / rms(u)             a source against all later routers at once
    softmax        p_g = softmax_i(Z_gi)            over the old sources, for a group's routers
    weighted_sums  M_g = sum_i (p_gi - 1/n) u_i     for all of them, each source read once
    combine        r = keep * h + sum_j c_j t_j     a site's read from a few terms

Each saves its inputs and nothing else; the inputs are the sources themselves, so a source is kept
once however many routers read it. The autograd functions of eager mode are here; operators.py makes
operators of the same products for torch.compile.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dares.ops.depth_mix.interface import exact_dtype

WIDENED_ELEMENTS = 1 << 22


# -- the bank ------------------------------------------------------------------------------------


class Gathered:
    """A gradient that many nodes of one backward pass add to, in place.

    The nodes hand each other no gradient for it, only the order: autograd runs the node that takes
    the sum after all that add to it. A pass is known by autograd's number of it, so that one that
    stopped on its way leaves nothing behind for the next.
    """

    def __init__(self, shape: Sequence[int], like: Tensor) -> None:
        self._shape, self._dtype, self._device = shape, exact_dtype(like), like.device
        self._pass = -1
        self._sum: Tensor | None = None

    def sum(self) -> Tensor:
        """This pass's sum so far, to add to."""
        if self._sum is None or self._pass != torch._C._current_graph_task_id():
            self._sum = torch.zeros(self._shape, dtype=self._dtype, device=self._device)
            self._pass = torch._C._current_graph_task_id()
        return self._sum

    def peek(self) -> Tensor | None:
        """This pass's sum; None if nothing was added."""
        return self._sum if self._pass == torch._C._current_graph_task_id() else None

    def take(self) -> Tensor | None:
        """The same for the last time in this pass."""
        value, self._sum = self.peek(), None
        return value


class Bank:
    """The sources of one pass in one buffer [capacity, N, D].

    A slot is written once. A pass that would write it again (a fork of the state, or gradient
    checkpointing running a layer a second time) goes on in a copy, from that slot on.
    """

    def __init__(self, buffer: Tensor, parent: Bank | None = None, count: int = 0) -> None:
        self.buffer, self.parent, self.first, self.count = buffer, parent, count, count
        self.gradient = Gathered(buffer.shape, buffer)
        self._scratch: Tensor | None = None

    def branch(self, slot: int) -> Bank:
        """The bank to write that slot in."""
        if slot == self.count:
            return self
        buffer = torch.empty_like(self.buffer)
        buffer[:slot] = self.buffer[:slot]
        return Bank(buffer, self, slot)

    def write(self, source: Tensor) -> Tensor:
        """Copy a source into the next slot, and give that slot."""
        # .data: earlier slots have been saved for the backward, and this does not touch them
        slot = self.buffer.data[self.count]
        slot.copy_(source)
        self.count += 1
        return slot

    def owner(self, slot: int) -> Bank:
        """The bank in which that slot was first written, where its gradient is gathered."""
        bank = self
        while slot < bank.first and bank.parent is not None:
            bank = bank.parent
        return bank

    def gather(self, d_sources: Tensor) -> None:
        """Add to the gradients of the first n sources: [n, N, D]"""
        last, bank = d_sources.shape[0], self
        while last > 0:
            bank = bank.owner(last - 1)
            bank.gradient.sum()[bank.first : last] += d_sources[bank.first : last]
            last = bank.first

    def scratch(self) -> Tensor:
        """A [N, D] buffer for products: fresh memory costs more than the product."""
        if self._scratch is None:
            self._scratch = self.buffer.new_empty(
                self.buffer.shape[1:], dtype=exact_dtype(self.buffer)
            )
        return self._scratch


class Slot(NamedTuple):
    """A source's place in a bank."""

    bank: Bank
    number: int

    def gradient(self) -> Tensor:
        """Where its gradient [N, D] is gathered in this backward pass."""
        return self.bank.owner(self.number).gradient.sum()[self.number]


class Store(torch.autograd.Function):
    """A source, from here on kept in the bank alone; in the backward, all its gradient."""

    @staticmethod
    def forward(ctx: Any, bank: Bank, source: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.bank, ctx.slot, ctx.dtype = bank, bank.count, source.dtype
        return bank.write(source)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None) -> tuple[None, Tensor | None]:
        gathered = ctx.bank.gradient
        total = gathered.take() if ctx.slot == ctx.bank.first else gathered.peek()
        if total is not None:
            grad = total[ctx.slot] if grad is None else total[ctx.slot] + grad
        return None, None if grad is None else grad.to(ctx.dtype)


# -- score ---------------------------------------------------------------------------------------


def score_forward(source: Tensor, keys: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """source [N, D], keys [R, D] -> scores [N, R] and 1/rms [N], in the keys' dtype."""
    exact = source.to(keys.dtype)
    norm = torch.linalg.vector_norm(exact, dim=-1)
    inverse_rms = (norm.square() / exact.shape[-1] + eps).rsqrt()
    return (exact @ keys.T).mul_(inverse_rms.unsqueeze(-1)), inverse_rms


def score_backward(
    grad: Tensor,
    source: Tensor,
    keys: Tensor,
    scores: Tensor,
    inverse_rms: Tensor,
    into: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """du = (dZ / rms) K - u (dZ . Z) / (D rms^2), added to `into`;   dK = (dZ / rms)^T u"""
    exact = source.to(keys.dtype)
    scaled = grad * inverse_rms.unsqueeze(-1)
    along = (grad * scores).sum(-1).mul_(inverse_rms.square()).div_(exact.shape[-1])
    d_source = scaled @ keys if into is None else into.addmm_(scaled, keys)
    d_source.addcmul_(exact, along.unsqueeze(-1), value=-1)
    return d_source, scaled.T @ exact


class Score(torch.autograd.Function):
    """scores [N, R] of a source against the keys; slot is where the source is kept, if it is."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, keys: Tensor, eps: float, slot: Slot | None) -> Tensor:
        scores, inverse_rms = score_forward(source, keys, eps)
        ctx.save_for_backward(source, keys, scores, inverse_rms)
        ctx.slot = slot
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        into = ctx.slot.gradient() if ctx.slot and ctx.needs_input_grad[0] else None
        source, keys, scores, inverse_rms = ctx.saved_tensors
        d_source, d_keys = score_backward(grad, source, keys, scores, inverse_rms, into)
        handed_on = None if into is not None else d_source.to(source.dtype)
        return handed_on, d_keys, None, None


# -- softmax over the old sources ----------------------------------------------------------------


def softmax_forward(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """scores [N, G, n] -> softmax over n, the largest score and sum exp(score - largest) [N, G]."""
    top = scores.amax(-1)
    exponents = (scores - top.unsqueeze(-1)).exp_()
    total = exponents.sum(-1)
    return exponents.div_(total.unsqueeze(-1)), top, total


def softmax_backward(
    d_softmax: Tensor | None, d_total: Tensor, softmax: Tensor, total: Tensor
) -> Tensor:
    """dz_i = p_i (dp_i - sum_j p_j dp_j + total * d total); the largest score is a constant."""
    common = d_total * total
    if d_softmax is None:
        return softmax * common.unsqueeze(-1)
    common = common - (softmax * d_softmax).sum(-1)
    return (d_softmax + common.unsqueeze(-1)).mul_(softmax)


class OldSoftmax(torch.autograd.Function):
    """Saves the softmax and its sums, not the scores."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        softmax, top, total = softmax_forward(scores)
        ctx.save_for_backward(softmax, total)
        ctx.mark_non_differentiable(top)
        return softmax, top, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_softmax: Tensor, _: Tensor, d_total: Tensor) -> Tensor:
        return softmax_backward(d_softmax, d_total, *ctx.saved_tensors)


# -- weighted sums -------------------------------------------------------------------------------


def weighted_sums_forward(softmax: Tensor, sources: Tensor) -> Tensor:
    """sum_i (p_gi - 1/n) u_i for each g, and last sum_i u_i

    softmax [N, G, n], sources [n, N, D] -> sums [N, G + 1, D], in the softmax's dtype.
    """
    weights = _with_ones(softmax - 1 / sources.shape[0])
    by_token = sources.transpose(0, 1)
    if sources.dtype == weights.dtype:
        return torch.bmm(weights, by_token)
    blocks = _token_blocks(by_token)
    return torch.cat([torch.bmm(weights[at], by_token[at].to(weights.dtype)) for at in blocks])


def weighted_sums_backward(grad: Tensor, softmax: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
    """dp_gi = dM_g . u_i,   du_i = sum_g (p_gi - 1/n) dM_g + d(sum)   [n, N, D]"""
    weights = _with_ones(softmax - 1 / sources.shape[0])
    d_sources = torch.bmm(weights.transpose(1, 2), grad).transpose(0, 1)
    d_mixes, by_token = grad[:, :-1], sources.transpose(0, 1)
    if sources.dtype == weights.dtype:
        return torch.bmm(d_mixes, by_token.transpose(1, 2)), d_sources
    blocks = _token_blocks(by_token)
    d_softmax = torch.cat(
        [torch.bmm(d_mixes[at], by_token[at].to(weights.dtype).transpose(1, 2)) for at in blocks]
    )
    return d_softmax, d_sources


def _with_ones(weights: Tensor) -> Tensor:
    return torch.cat([weights, torch.ones_like(weights[:, :1])], 1)


def _token_blocks(sources: Tensor) -> list[slice]:
    """Half-precision sources are widened a few tokens at a time, never the whole bank at once."""
    tokens, n, width = sources.shape
    step = max(1, WIDENED_ELEMENTS // (n * width))
    return [slice(first, first + step) for first in range(0, tokens, step)]


class Sums:
    """A group's weighted sums: not kept for the backward, but made again when a site asks.

    The sums of a group are as large as its sources. All its sites ask before the sums' own
    backward, which is where they are dropped, and where the gradient that the sites have gathered
    is passed on.
    """

    def __init__(self) -> None:
        self.node: Any = None
        self.gradient: Gathered
        self._saved: tuple[Tensor, ...] | None = None
        self._again: Tensor | None = None

    def saved(self) -> tuple[Tensor, ...]:
        """What the sums' node saved; unpacked once, since checkpointing allows no more."""
        if self._saved is None:
            self._saved = self.node.saved_tensors
        return self._saved

    def again(self) -> Tensor:
        """The sums [N, G + 1, D], computed once a backward."""
        if self._again is None:
            self._again = weighted_sums_forward(*self.saved())
        return self._again

    def drop(self) -> None:
        """Forget what was unpacked and made again."""
        self._saved = self._again = None


class WeightedSums(torch.autograd.Function):
    """The sums over all sources in the bank."""

    @staticmethod
    def forward(ctx: Any, sums: Sums, bank: Bank, softmax: Tensor, *sources: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.sums = weakref.ref(sums)  # a cycle would keep every source alive until collection
        ctx.bank = bank
        sums.node = ctx
        stacked = bank.buffer[: len(sources)]
        ctx.save_for_backward(softmax, stacked)
        value = weighted_sums_forward(softmax, stacked)
        sums.gradient = Gathered(value.shape, value)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None) -> tuple[Any, ...]:
        sums, n = ctx.sums(), len(ctx.needs_input_grad) - 3
        grad = sums.gradient.take() if sums is not None else None
        if grad is None:
            return None, None, None, *[None] * n
        saved = sums.saved()
        sums.drop()
        d_softmax, d_sources = weighted_sums_backward(grad, *saved)
        ctx.bank.gather(d_sources)
        return None, None, d_softmax, *[None] * n


# -- combine -------------------------------------------------------------------------------------


def combine_forward(
    stream: Tensor, keep: float, coefficients: Tensor, terms: Sequence[Tensor]
) -> Tensor:
    """stream [N, D], coefficients [N, k], k terms [N, D] -> [N, D] in the stream's dtype."""
    exact = stream.to(coefficients.dtype)
    columns = coefficients.unsqueeze(-1).unbind(1)
    if keep == 1:
        total = torch.addcmul(exact, terms[0], columns[0])
    elif keep:
        total = torch.addcmul(exact * keep, terms[0], columns[0])
    else:  # not zero times the stream, which may be infinite
        total = terms[0] * columns[0]
    for term, column in zip(terms[1:], columns[1:], strict=True):
        total.addcmul_(term, column)
    return total.to(stream.dtype)


@dataclass
class Site:
    """Where a read finds its terms: two of its group's sums, then sources of the bank."""

    keep: float
    bank: Bank
    sums: Sums | None  # None where the group's sums have no gradient of their own
    column: int
    young: range  # slots of the bank

    def terms(self, sums: Tensor, running: Tensor | None) -> list[Tensor]:
        """In the order of the coefficients: the router's mix, the plain sum, the young."""
        found = [sums[:, self.column], sums[:, -1]]
        found += [self.bank.buffer[slot] for slot in self.young]
        return found if running is None else [*found, running]


class Combine(torch.autograd.Function):
    """A site's read."""

    @staticmethod
    def forward(
        ctx: Any,
        site: Site,
        stream: Tensor,
        coefficients: Tensor,
        sums: Tensor,
        running: Tensor | None,
        *young: Tensor,
    ) -> Tensor:
        ctx.site, ctx.dtype = site, stream.dtype
        young_slots = site.bank.buffer[site.young.start : site.young.stop]
        kept_sums = sums if site.sums is None else None
        ctx.save_for_backward(coefficients, running, young_slots, kept_sums)
        return combine_forward(stream, site.keep, coefficients, site.terms(sums, running))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        site: Site = ctx.site
        coefficients, running, _, sums = ctx.saved_tensors
        exact = grad.to(coefficients.dtype)
        terms = site.terms(site.sums.again() if site.sums else sums, running)
        d_coefficients, product = torch.empty_like(coefficients), site.bank.scratch()
        for index, term in enumerate(terms):
            torch.mul(exact, term, out=product)
            torch.sum(product, -1, out=d_coefficients[:, index])

        columns = coefficients.unsqueeze(-1).unbind(1)
        if site.sums:
            d_sums = site.sums.gradient.sum()
            d_sums[:, site.column].addcmul_(exact, columns[0])
            d_sums[:, -1].addcmul_(exact, columns[1])
        for index, column in zip(site.young, columns[2:], strict=False):
            Slot(site.bank, index).gradient().addcmul_(exact, column)
        d_running = None if running is None else (columns[-1] * exact).to(running.dtype)
        d_stream = grad if site.keep == 1 else grad * site.keep if site.keep else None
        return None, d_stream, d_coefficients, None, d_running, *[None] * len(site.young)
