"""The four calls: order, bad input, and what a state promises."""

import pytest
import torch
from torch.utils import _pytree

import dares


def delta_scheme(**kwargs):
    return dares.build_scheme(dares.preset("delta"), width=8, sites=4, **kwargs)


def test_a_site_must_exist():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    with pytest.raises(ValueError, match="site 4 is out of range: this scheme has sites 0 to 3"):
        scheme.read(state, 4)
    with pytest.raises(ValueError, match="site -1 is out of range"):
        scheme.write(state, -1, torch.randn(2, 8))


def test_a_bank_is_read_only_after_it_is_written():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    with pytest.raises(
        ValueError, match="site 2 reads after 2 writes, but only 0 have been written"
    ):
        scheme.read(state, 2)


def test_a_used_state_is_not_read_again():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    scheme.write(state, 0, torch.randn(2, 8))
    with pytest.raises(ValueError, match="start a new state for each forward pass"):
        scheme.read(state, 0)


def test_sites_are_written_in_turn():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    with pytest.raises(ValueError, match="site 1 was written out of turn: the next site .* is 0"):
        scheme.write(state, 1, torch.randn(2, 8))


def test_finish_needs_every_site():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    with pytest.raises(ValueError, match="finish needs all 4 sites, but only 0"):
        scheme.finish(state)


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (torch.randn(2, 7), r"must end in width 8, got shape \(2, 7\)"),
        (torch.randn(2, 8, device="meta"), "the scheme is on cpu, the embeddings are on meta"),
        (torch.tensor([[1] * 8]), "must be floating point, got torch.int64"),
        (torch.full((2, 8), float("nan")), "embeddings hold NaN or infinity"),
        (torch.full((2, 8), float("inf")), "embeddings hold NaN or infinity"),
    ],
)
def test_bad_embeddings(embeddings, message):
    with pytest.raises(ValueError, match=message):
        delta_scheme().start(embeddings)


def test_large_finite_embeddings_are_fine():
    delta_scheme().start(torch.full((2, 8), 3e38))


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (torch.randn(2, 7), r"site 0 wrote shape \(2, 7\), the stream is \(2, 8\)"),
        (torch.randn(1, 8), r"site 0 wrote shape \(1, 8\)"),
        (torch.randn(2, 8, device="meta"), "site 0 wrote a tensor on meta, the stream is on cpu"),
        (torch.randn(2, 8).half(), "site 0 wrote torch.float16, the stream is torch.float32"),
    ],
)
def test_bad_deltas(delta, message):
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    with pytest.raises(ValueError, match=message):
        scheme.write(state, 0, delta)
    assert state.written == 0
    assert len(state.bank.sources) == 1


def test_routing_must_be_recorded_to_be_had():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    with pytest.raises(ValueError, match="pass record=True to start"):
        scheme.routing(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0, "sites": 4}, "width must be a whole number, at least 1, got 0"),
        ({"width": 8, "sites": 2.0}, "sites must be a whole number, at least 1, got 2.0"),
        ({"width": 8, "sites": 5}, "sites must be a multiple of sites_per_layer, got 5 and 2"),
        ({"width": 8, "sites": 1, "sites_per_layer": 1}, "no site of a model with 1 sites"),
    ],
)
def test_bad_shapes(arguments, message):
    with pytest.raises(ValueError, match=message):
        dares.build_scheme(dares.preset("delta"), **arguments)


def test_block_must_fit_the_model():
    with pytest.raises(
        ValueError, match=r"block must be between 1 and 28 \(the model's layers\), got 40"
    ):
        dares.build_scheme(dares.preset("delta_block", block=40), width=8, sites=56)


def test_build_scheme_wants_a_config():
    with pytest.raises(ValueError, match="config must be a scheme config .* got 'delta'"):
        dares.build_scheme("delta", width=8, sites=4)


def test_a_fork_leaves_the_original_alone():
    scheme = dares.build_scheme(dares.preset("delta_block", block=1), width=8, sites=4)
    state = scheme.start(torch.randn(2, 8), record=True)
    scheme.write(state, 0, torch.randn(2, 8))
    fork = state.fork()
    scheme.read(fork, 1)
    scheme.write(fork, 1, torch.randn(2, 8))
    assert (state.written, len(state.bank.sources), state.routing) == (1, 1, {})
    assert (fork.written, len(fork.bank.sources), list(fork.routing)) == (2, 2, [1])


def test_a_state_is_a_pytree():
    scheme = delta_scheme()
    state = scheme.start(torch.randn(2, 8))
    scheme.write(state, 0, torch.randn(2, 8))
    leaves, spec = _pytree.tree_flatten(state)
    assert any(leaf is state.bank.keys for leaf in leaves)
    again = _pytree.tree_unflatten(leaves, spec)
    assert again.written == 1
    assert again.stream is state.stream


def test_autocast_may_write_half_precision():
    for name in ("delta", "delta_block", "attnres", "cumulative"):
        scheme = dares.build_scheme(
            dares.preset(name, **({"block": 2} if name == "delta_block" else {})), width=8, sites=8
        )
        torch.nn.init.normal_(scheme.query)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            state = scheme.start(torch.randn(2, 8), record=True)
            for site in range(8):
                read = scheme.read(state, site)
                assert read.dtype == torch.float32
                scheme.write(state, site, read.tanh().bfloat16())
            assert scheme.finish(state).dtype == torch.float32
        assert all(w.dtype == torch.float32 for w in scheme.routing(state) if w is not None)


def test_half_precision_routes_in_float32():
    scheme = dares.build_scheme(dares.preset("delta"), width=8, sites=4).bfloat16()
    torch.nn.init.normal_(scheme.query)
    state = scheme.start(torch.randn(2, 8, dtype=torch.bfloat16), record=True)
    for site in range(4):
        read = scheme.read(state, site)
        assert read.dtype == torch.bfloat16
        scheme.write(state, site, read.tanh())
    for weights in scheme.routing(state)[1:]:
        assert weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(2))


def test_the_projection_is_orthogonal_and_fixed():
    config = dares.preset("cumulative", sources="projected")
    one, two = (dares.build_scheme(config, width=8, sites=4) for _ in range(2))
    matrix = one.sources.projection
    assert torch.equal(matrix, two.sources.projection)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(8))
    assert "sources.projection" in one.state_dict()


def test_identity_obstacles_are_named():
    def obstacle(config, change=None):
        scheme = dares.build_scheme(config, width=8, sites=8)
        if change:
            torch.nn.init.ones_(getattr(scheme, change))
        return scheme.identity_obstacle()

    preset = dares.preset
    assert obstacle(preset("standard")) is None
    assert "does not sum to the stream" in obstacle(preset("cumulative"))
    assert "without the running" in obstacle(preset("delta_block", block=2, running=False))
    assert "read_scale='none'" in obstacle(preset("delta", read_scale="none"))
    assert "queries are not zero" in obstacle(preset("delta"), "query")
    assert obstacle(preset("delta"), "gain") is None
    assert obstacle(preset("cumulative", merge="gate")) is None
    assert obstacle(preset("cumulative", merge="gate"), "query") is None
    assert "gates are no longer zero" in obstacle(preset("cumulative", merge="gate"), "gate")
    assert "does not sum" in obstacle(preset("cumulative", merge="gate", final="routed"))
    assert obstacle(preset("delta", merge="gate", final="routed")) is None
    assert obstacle(preset("delta", merge="none", final="routed")) is None
    assert "queries" in obstacle(preset("delta", query_std=0.02))
