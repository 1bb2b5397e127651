"""A whole pass through depth with leaves for every input, to compare backends with."""

from __future__ import annotations

from typing import Any

import torch

import dares

PRESETS = {
    "attnres": dares.preset("attnres"),
    "attnres_block": dares.preset("attnres_block", block=2),
    "delta": dares.preset("delta"),
    "delta_block": dares.preset("delta_block", block=3),
    "cumulative": dares.preset("cumulative"),
    "cumulative_add": dares.preset("cumulative", merge="add"),
    "gate": dares.preset("delta", merge="gate", final="routed"),
    "null": dares.preset("delta", null_source=True),
    "null_block": dares.preset("attnres_block", block=2, null_source=True),
    "literal": dares.preset("delta", read_scale="none"),
}


class Pass:
    """Random sources and routers; run() gives outputs and weights, gradients() every gradient."""

    def __init__(
        self,
        config: Any,
        *,
        shape: tuple[int, ...] = (2, 5, 12),
        sites: int = 14,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.config, self.shape, self.sites = config, shape, sites
        self.embeddings = torch.randn(shape).to(dtype).requires_grad_()
        self.deltas = [torch.randn(shape).to(dtype).requires_grad_() for _ in range(sites)]
        self.pull = torch.randn(sites + 1, *shape).to(dtype)
        scheme = dares.build_scheme(config, width=shape[-1], sites=sites)
        self.routers = {
            name: torch.randn_like(
                p, dtype=torch.float64 if dtype == torch.float64 else torch.float32
            )
            for name, p in scheme.named_parameters()
        }

    def scheme(self, backend: str) -> Any:
        scheme = dares.build_scheme(
            self.config, width=self.shape[-1], sites=self.sites, backend=backend
        )
        for name, value in self.routers.items():
            setattr(scheme, name, torch.nn.Parameter(value.clone()))
        return scheme

    def run(self, scheme: Any, *, record: bool = False) -> tuple[list[Any], Any]:
        state = scheme.start(self.embeddings, record=record)
        outputs = []
        for site, delta in enumerate(self.deltas):
            outputs.append(scheme.read(state, site))
            scheme.write(state, site, delta)
        outputs.append(scheme.finish(state))
        return outputs, state

    def leaves(self, scheme: Any) -> list[Any]:
        return [self.embeddings, *self.deltas, *scheme.parameters()]

    def loss(self, outputs: list[Any]) -> Any:
        return sum((o * p).sum() for o, p in zip(outputs, self.pull, strict=True))

    def gradients(self, scheme: Any) -> tuple[Any, ...]:
        outputs, _ = self.run(scheme)
        return torch.autograd.grad(self.loss(outputs), self.leaves(scheme))


def assert_all_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Each difference relative to the largest entry of what is expected.

    (Not below a hundredth of the largest of all: a source with no weight has hardly a gradient.)
    """
    actual, expected = list(actual), list(expected)
    assert len(actual) == len(expected)
    floor = max(e.double().abs().max() for e in expected) / 100
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.dtype == e.dtype
        assert a.isfinite().all(), index
        error = (a.double() - e.double()).abs().max() / e.double().abs().max().clamp(min=floor)
        assert error < tolerance, f"tensor {index}: relative error {error:.2g}"
