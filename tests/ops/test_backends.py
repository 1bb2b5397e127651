"""Every backend against naive: values, weights and all gradients, at awkward shapes."""

import math

import pytest
import torch

import dares
from tests.ops.passes import FAST, PRESETS, SMALL, TOLERANCE, Pass, assert_all_close

pytestmark = pytest.mark.parametrize("backend", FAST)


def compare(each, backend, tolerance):
    fast, slow = each.scheme(backend), each.scheme("naive")
    (mine, state), (theirs, plain) = each.run(fast, record=True), each.run(slow, record=True)
    assert_all_close(mine, theirs, tolerance)
    for a, b in zip(fast.routing(state), slow.routing(plain), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_all_close([a], [b], tolerance)
    assert_all_close(each.gradients(fast), each.gradients(slow), tolerance)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_presets(name, dtype, backend):
    if dtype == torch.float64 and backend in SMALL:
        pytest.skip("no float64 on this backend")
    compare(Pass.on(backend, PRESETS[name], dtype=dtype), backend, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["delta", "attnres_block"])
@pytest.mark.parametrize(
    ("shape", "sites"),
    [
        ((1, 1, 1), 2),  # the smallest: one token, width one
        ((3, 7, 33), 6),  # nothing a power of two
        ((2, 1, 17), 6),  # small
        ((5, 48), 4),  # no batch
        ((173, 20), 18),  # more tokens than width
        ((1, 2, 130), 30),
    ],
)
def test_shapes(name, shape, sites, dtype, backend):
    if backend in SMALL and math.prod(shape) * sites > 500:
        pytest.skip("slow in the interpreter; test_triton.py has kernels at such shapes")
    config = (
        PRESETS[name]
        if sites > 4
        else PRESETS[name].replace(**({"block": 1} if name == "attnres_block" else {}))
    )
    compare(Pass(config, shape=shape, sites=sites, dtype=dtype), backend, TOLERANCE[dtype])


@pytest.mark.parametrize("sources", [41, 97, pytest.param(255, marks=pytest.mark.slow)])
def test_many_sources(sources, backend):
    if backend in SMALL and sources == 97:
        pytest.skip("41 are in three tiles and two tables already")
    shape = (1, 5) if backend in SMALL else (3, 8)
    each = Pass.on(backend, PRESETS["delta"], shape=shape, sites=sources - 1)
    compare(each, backend, each.tolerance)


def test_scores_of_any_size(backend):
    """Large scores must not overflow: each group and site has its own maximum."""
    each = Pass.on(backend, PRESETS["null"], dtype=torch.float32)
    each.routers["query"] *= 200
    each.deltas = [(d.detach() * 100).requires_grad_() for d in each.deltas]
    compare(each, backend, 1e-4)


def test_zero_sources(backend):
    """A delta of zeros has no direction: its score is zero, not NaN."""
    each = Pass.on(backend, PRESETS["delta"], dtype=torch.float32)
    each.deltas[3] = torch.zeros_like(each.deltas[3]).requires_grad_()
    compare(each, backend, 2e-5)


def test_unknown_backend(backend):
    with pytest.raises(ValueError, match="unknown backend 'gruoped'; did you mean 'grouped'"):
        dares.build_scheme(dares.preset("delta"), width=8, sites=4, backend="gruoped")
    scheme = dares.build_scheme(dares.preset("delta"), width=8, sites=4)
    with pytest.raises(ValueError, match="unknown backend"):
        scheme.backend = "fast"
    assert scheme.backend == "auto"
