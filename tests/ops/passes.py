"""A whole pass through depth with leaves for every input, to compare backends with."""

from __future__ import annotations

from typing import Any

import torch

import dares
from dares.ops.depth_mix import BACKENDS

FAST = [name for name in BACKENDS if name != "naive"]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 0.04, torch.float16: 5e-3}

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

# Triton's interpreter knows no float64 and takes a tenth of a millisecond a word of a kernel.
SMALL: dict[str, dict[str, Any]] = {"triton": {"shape": (2, 7), "sites": 6, "dtype": torch.float32}}
FEW = ("delta_block", "gate")  # with a running block, with young sources and a gate


def cases(names: Any = PRESETS) -> list[tuple[str, str]]:
    """Backends with presets: all of them, or a few where a pass takes long."""
    return [(b, name) for b in FAST for name in names if b not in SMALL or name in FEW]


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
        self.tolerance = TOLERANCE[dtype]
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

    @classmethod
    def on(cls, backend: str, config: Any, **settings: Any) -> Pass:
        """A pass of a size that is quick on that backend."""
        return cls(config, **{**SMALL.get(backend, {}), **settings})

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
