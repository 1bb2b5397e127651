"""Every scheme against the plain transcription: outputs and every gradient, in float64."""

import itertools

import pytest
import torch

import dares
from dares.config import DepthConfig
from dares.ops.depth_mix import BACKENDS
from tests.schemes import reference

WIDTH, SITES = 5, 10
EXACT = [name for name in BACKENDS if name != "triton"]  # it knows no float64: see tests/ops

PRESETS = {
    name: dares.preset(name, **({"block": 2} if "block" in name else {}))
    for name, row in dares.PRESETS.items()
    if row.config.scheme == "routed"
}
GRID = {
    f"{sources}-{merge}-{final}{'-null' * null}-{scale}": DepthConfig(
        sources=sources,
        merge=merge,
        final=final,
        read_scale=scale,
        null_source=null,
        block=2 if sources == "block" else None,
    )
    for sources, merge, final, scale, null in itertools.product(
        ("sublayer", "block", "cumulative", "normed", "projected"),
        ("replace", "add", "gate", "none"),
        ("stream", "routed"),
        ("stream", "none"),
        (False, True),
    )
    if (merge, final) != ("none", "stream")
}
MORE = {
    "block-1": dares.preset("delta_block", block=1),
    "block-all": dares.preset("attnres_block", block=5),
    "block-uneven": dares.preset("delta_block", block=3),
    "no-running": dares.preset("delta_block", block=2, running=False),
    "large-eps": dares.preset("delta", eps=0.5),
}


def both_ways(config, *, parallel, backend="naive"):
    """(outputs, gradients) by dares and by the transcription, from the same random numbers."""
    torch.manual_seed(3)
    scheme = dares.build_scheme(
        config, width=WIDTH, sites=SITES, parallel=parallel, backend=backend
    ).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.normal_()
    h0 = torch.randn(2, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    matrices = [
        torch.randn(WIDTH, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(SITES)
    ]
    # no norm before the branch: a wrong constant would show
    branches = [lambda x, m=m: torch.tanh(x @ m) for m in matrices]
    leaves = [h0, *matrices, *scheme.parameters()]

    state = scheme.start(h0, record=True)
    for first in range(0, SITES, 2):
        pair = (first, first + 1)
        if parallel:
            reads = [scheme.read(state, site) for site in pair]
            for site, read in zip(pair, reads, strict=True):
                scheme.write(state, site, branches[site](read))
        else:
            for site in pair:
                scheme.write(state, site, branches[site](scheme.read(state, site)))
    ours = scheme.finish(state)
    routing = {s: w for s, w in enumerate(scheme.routing(state)) if w is not None}

    gates = scheme.gate if config.merge == "gate" and scheme.gated else None
    routers = {
        site: (
            scheme.query[row],
            scheme.gain[row],
            gates[row] if gates is not None and row < len(gates) else None,
        )
        for site, row in scheme.router_of_site.items()
    }
    theirs, weights = reference.forward(
        config,
        h0,
        branches,
        routers,
        parallel=parallel,
        projection=getattr(scheme.sources, "projection", None),
    )
    direction = torch.randn_like(ours)
    gradients = [torch.autograd.grad((out * direction).sum(), leaves) for out in (ours, theirs)]
    return (ours, routing, gradients[0]), (theirs, weights, gradients[1])


@pytest.mark.parametrize("backend", EXACT)
@pytest.mark.parametrize("parallel", [False, True], ids=["sequential", "parallel"])
@pytest.mark.parametrize(
    "config", [*PRESETS.values(), *GRID.values(), *MORE.values()], ids=[*PRESETS, *GRID, *MORE]
)
def test_scheme_equals_transcription(config, parallel, backend):
    (ours, routing, our_grads), (theirs, weights, their_grads) = both_ways(
        config, parallel=parallel, backend=backend
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert routing.keys() == weights.keys()
    for site in routing:
        torch.testing.assert_close(routing[site], weights[site], rtol=1e-10, atol=1e-10)
    for mine, plain in zip(our_grads, their_grads, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("parallel", [False, True])
def test_standard_equals_plain_sum(parallel):
    scheme = dares.build_scheme(dares.preset("standard"), width=4, sites=4, parallel=parallel)
    h = torch.randn(2, 4)
    deltas = torch.randn(4, 2, 4)
    state = scheme.start(h)
    for site in range(0, 4, 2):
        torch.testing.assert_close(scheme.read(state, site), h + deltas[:site].sum(0))
        scheme.write(state, site, deltas[site])
        if not parallel:
            scheme.read(state, site + 1)
        scheme.write(state, site + 1, deltas[site + 1])
    torch.testing.assert_close(scheme.finish(state), h + deltas.sum(0))
    assert not list(scheme.parameters())


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["attnres", "attnres_block", "delta", "delta_block"])
def test_zero_queries_read_the_stream_to_the_last_bit(name, dtype, parallel):
    config = PRESETS[name]
    for null in (False, True):
        config = config.replace(null_source=null)
        scheme = dares.build_scheme(config, width=48, sites=12, parallel=parallel)
        state = scheme.start(torch.randn(3, 7, 48).to(dtype) * 0.02)
        for site in range(0, 12, 2):
            for s in (site, site + 1):
                if parallel or s == site:
                    assert torch.equal(scheme.read(state, s), state.stream)
            scheme.write(state, site, torch.randn(3, 7, 48).to(dtype))
            if not parallel:
                assert torch.equal(scheme.read(state, site + 1), state.stream)
            scheme.write(state, site + 1, torch.randn(3, 7, 48).to(dtype))
        assert torch.equal(scheme.finish(state), state.stream)
        assert scheme.identity_obstacle() is None


def test_labels_name_every_weight():
    for config in [*PRESETS.values(), *MORE.values(), *GRID.values()]:
        for parallel in (False, True):
            (_, routing, _), _ = both_ways(config, parallel=parallel)
            scheme = dares.build_scheme(config, width=WIDTH, sites=SITES, parallel=parallel)
            for site in range(scheme.read_sites):
                labels = scheme.source_labels(site)
                assert len(set(labels)) == len(labels)
                assert len(labels) == (routing[site].shape[-1] if site in routing else 0)


def test_labels_of_a_block_scheme():
    scheme = dares.build_scheme(dares.preset("attnres_block", block=2), width=4, sites=10)
    assert scheme.source_labels(0) == []
    assert scheme.source_labels(3) == ["embedding", "running"]
    assert scheme.source_labels(4) == ["embedding", "block 0"]
    assert scheme.source_labels(9) == ["embedding", "block 0", "block 1", "running"]
    assert scheme.source_labels(10) == ["embedding", "block 0", "block 1", "running"]


def test_every_parameter_gets_a_gradient_at_the_start():
    for name, config in {**PRESETS, **GRID, **MORE}.items():
        for parallel in (False, True):
            scheme = dares.build_scheme(config, width=WIDTH, sites=SITES, parallel=parallel)
            h0 = torch.randn(2, WIDTH)
            state = scheme.start(h0)
            for first in range(0, SITES, 2):
                reads = {}
                for site in (first, first + 1):
                    if parallel:
                        reads[site] = scheme.read(state, site)
                for site in (first, first + 1):
                    read = reads[site] if parallel else scheme.read(state, site)
                    scheme.write(state, site, torch.tanh(read + site))
            scheme.finish(state).square().sum().backward()
            for key, parameter in scheme.named_parameters():
                assert parameter.grad is not None, f"{name}: {key} has no gradient"


def test_router_count_is_the_papers_less_site_0():
    scheme = dares.build_scheme(dares.preset("delta_block", block=4), width=4096, sites=72)
    assert sum(p.numel() for p in scheme.parameters()) == 589_824 - 2 * 4096
