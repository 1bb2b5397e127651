"""Depth mixing where no gradient is asked for: few steps a site, since decoding is all steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dares.ops.depth_mix import products
from dares.ops.depth_mix.interface import (
    DepthMixer,
    MixState,
    ReadRule,
    exact_dtype,
    exact_keys,
    without_autocast,
)
from dares.ops.depth_mix.tape import Tape


@dataclass
class ForwardState(MixState):
    """The sources are views of the tape's slots; their scores are on the tape too."""

    tape: Tape | None = None
    # One token on a CPU: each source's scores for all routers, as plain numbers.
    numbers: list[list[float]] = field(default_factory=list)

    @property
    def one_token(self) -> bool:
        """Is the pass a step of decoding, which has its own way to read?"""
        return len(self.numbers) > 0


class ForwardMixer(DepthMixer):
    """A source is scored once, for all later routers; a read is one product with the bank."""

    def start(self, keys: Tensor, *, record: bool) -> ForwardState:
        return ForwardState(keys=exact_keys(keys))

    def append(self, state: Any, source: Tensor, *, next_router: int) -> None:
        _refuse_gradients(source)
        flat = source.reshape(-1, source.shape[-1])
        if state.tape is None:
            state.keys = state.keys.to(exact_dtype(source))
            shape = (self.plan.sources, *flat.shape)
            state.tape = Tape(state.keys, shape, flat.dtype)
        slot = len(state.sources)
        tape = state.tape = state.tape.branch(slot)
        tape.count += 1
        tape.sources[slot] = flat
        if next_router < self.routers:
            with without_autocast(source.device.type):
                scores, _ = products.score(flat, state.keys[next_router:], self.plan.eps)
            tape.scores[slot, :, next_router:] = scores
        if len(flat) == 1 and flat.device.type == "cpu":
            state.numbers.append(tape.scores[slot, 0].tolist())
        state.sources.append(tape.sources[slot])

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
        _refuse_gradients(stream)
        if state.one_token and not record:
            with without_autocast(stream.device.type):
                return self._read_one(state, router, stream, rule, running), None
        tape, finished = state.tape, len(state.sources)
        with without_autocast(stream.device.type):
            bank, scores = tape.sources[:finished], tape.scores[:finished, :, router]
            if running is not None:
                flat = running.reshape(1, -1, running.shape[-1])
                key = state.keys[router : router + 1]
                score, _ = products.score(flat[0], key, self.plan.eps)
                bank, scores = torch.cat([bank, flat]), torch.cat([scores, score.T])
            if self.plan.null:
                scores = torch.cat([scores, torch.zeros_like(scores[:1])])
            weights = scores.softmax(0)  # [n, N]
            shifted = weights - 1 / len(weights) if rule.centred else weights
            coefficients = (shifted[: len(bank)] * rule.scale).T.unsqueeze(1)  # [N, 1, n]
            by_token = bank.to(weights.dtype).transpose(0, 1)
            if rule.keep:
                rows = stream.reshape(-1, 1, stream.shape[-1]).to(weights.dtype)
                read = torch.baddbmm(rows, coefficients, by_token, beta=rule.keep)
            else:
                read = torch.bmm(coefficients, by_token)
        recorded = weights.T.view(*stream.shape[:-1], -1) if record else None
        return read.view(stream.shape).to(stream.dtype), recorded

    def _read_one(
        self, state: Any, router: int, stream: Tensor, rule: ReadRule, running: Tensor | None
    ) -> Tensor:
        """One token's weights are a handful of numbers, which torch would handle one call each."""
        dtype, n = state.keys.dtype, len(state.numbers)
        logits = [scores[router] for scores in state.numbers]
        if running is not None:
            own = running.view(-1)
            state.tape = state.tape.branch(n)
            state.tape.sources[n, 0] = own  # the next source's place, free until that is finished
            exact = own.to(dtype)
            square = torch.dot(exact, exact).item() / len(exact)
            score = torch.dot(exact, state.keys[router]).item()
            logits.append(score / math.sqrt(square + self.plan.eps))
            n += 1
        if self.plan.null:
            logits.append(0.0)
        top = max(logits)
        exponents = [math.exp(logit - top) for logit in logits]
        total, scale = sum(exponents), float(rule.scale)
        shift = 1 / len(logits) if rule.centred else 0.0
        coefficients = [(exponent / total - shift) * scale for exponent in exponents[:n]]
        row = torch.tensor([coefficients], dtype=dtype)
        terms = state.tape.sources[:n, 0].to(dtype)
        if rule.keep:
            read = torch.addmm(stream.view(1, -1).to(dtype), row, terms, beta=rule.keep)
        else:
            read = row @ terms
        return read.to(stream.dtype).view(stream.shape)


def _refuse_gradients(tensor: Tensor) -> None:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "this state was started without gradients, and a tensor that needs them came: "
            "start it outside torch.no_grad()"
        )
