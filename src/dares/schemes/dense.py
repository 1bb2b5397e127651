"""DenseFormer: after a layer, a learned weighted sum of all earlier layers' outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dares.config import DenseConfig
from dares.schemes.base import Decision, DepthState, ResidualScheme, set_start


@dataclass
class DenseState(DepthState):
    """The embedding X_0 and the layers' outputs X_1, X_2, ... so far, before they were averaged."""

    outputs: list[Tensor] = field(default_factory=list)


class DenseScheme(ResidualScheme):
    """Y_i = sum_j alpha_ij X_j,   j = i, i - k, i - 2k, ... >= 0   after every p-th layer i

    X_0: the embedding, X_i: what layer i makes of Y_{i-1}; the next layer reads Y_i. k: dilation,
    p: period. alpha_ii = 1 and the others 0 at the start: the identity.  X, Y: [..., D]
                                                                                   (2402.02622)
    """

    def __init__(self, config: DenseConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        layers = self.sites // self.sites_per_layer
        averaged = range(config.period, layers + 1, config.period)
        self.read_layers = {layer: list(range(layer, -1, -config.dilation)) for layer in averaged}
        if not self.read_layers:
            raise ValueError(
                f"period must be between 1 and {layers} (the model's layers), got {config.period}"
            )
        self.place, count = {}, 0
        for layer, read in self.read_layers.items():
            self.place[layer] = slice(count, count + len(read))
            count += len(read)
        self.alpha = nn.Parameter(torch.empty(count, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        start = torch.zeros(self.alpha.shape)
        start[[place.start for place in self.place.values()]] = 1  # the layer itself comes first
        set_start(self.alpha, start)

    def _start(self, embeddings: Tensor, *, record: bool) -> DenseState:
        return DenseState(stream=embeddings, outputs=[embeddings])

    def _read(self, state: DepthState, site: int) -> Tensor:
        return state.stream

    def _write(self, state: Any, site: int, delta: Tensor) -> None:
        self._join_stream(state, site, delta)
        layer, rest = divmod(site + 1, self.sites_per_layer)
        if rest:
            return
        state.outputs.append(state.stream)
        if layer in self.read_layers:
            terms = [state.outputs[j] for j in self.read_layers[layer]]
            state.stream = weighted_sum(self.alpha[self.place[layer]], terms)

    def decisions(self, state: Any, site: int) -> dict[str, Decision]:
        layer, rest = divmod(site + 1, self.sites_per_layer)
        if rest or layer not in self.read_layers:
            return {}
        read = reversed(self.read_layers[layer])  # as they came
        names = [f"layer {j - 1}" if j else "embedding" for j in read]
        alpha = self.alpha[self.place[layer]].flip(0)
        values = alpha.expand(*state.stream.shape[:-1], len(names))  # every token's alike
        return {"layer weights": Decision(names, values)}

    def identity_obstacle(self) -> str | None:
        alpha = self.alpha.detach().clone()
        for place in self.place.values():
            alpha[place.start] -= 1
        return "the weights of earlier layers have been trained" if alpha.any() else None

    def carried_vectors(self) -> int:
        return 1 + self.sites // self.sites_per_layer

    def extra_repr(self) -> str:
        config = self.config
        return f"{super().extra_repr()}, dilation={config.dilation}, period={config.period}"


def weighted_sum(weights: Tensor, terms: list[Tensor]) -> Tensor:
    """sum_j w_j t_j in the terms' dtype; weights [n], n terms of one shape."""
    if torch.compiler.is_compiling():
        exact = [weight * term for weight, term in zip(weights, terms, strict=True)]
        return sum(exact[1:], exact[0]).to(terms[0].dtype)
    return _WeightedSum.apply(weights, *terms)


class _WeightedSum(torch.autograd.Function):
    """One pass a term, forward and backward, and nothing kept but the terms themselves."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, *terms: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *terms)
        exact = torch.promote_types(terms[0].dtype, weights.dtype)
        total = terms[0].to(exact) * weights[0]
        for weight, term in zip(weights[1:], terms[1:], strict=True):
            total.addcmul_(term.to(exact), weight)
        return total.to(terms[0].dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, *terms = ctx.saved_tensors
        exact = grad.to(torch.promote_types(grad.dtype, weights.dtype))
        flat = exact.reshape(-1)
        dots = [torch.dot(flat, term.to(exact.dtype).reshape(-1)) for term in terms]
        needed = ctx.needs_input_grad[1:]
        grads = [
            (exact * weight).to(grad.dtype) if need else None
            for weight, need in zip(weights, needed, strict=True)
        ]
        return torch.stack(dots).to(weights.dtype), *grads
