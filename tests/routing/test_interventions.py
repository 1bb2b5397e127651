"""Interventions change what they say, nothing else, and leave no trace."""

import pytest
import torch

import dares
from dares.routing.interventions import (
    Intervention,
    drop_routed,
    fixed_weights,
    intervening,
    remove_source,
    scale_scores,
    uniform_weights,
)
from tests.routing.models import EVERY, routed, rows

ROUTED = [name for name, config in EVERY.items() if config.scheme == "routed"]


@torch.no_grad()
def logits(model, ids):
    return model(ids, use_cache=False).logits


@torch.no_grad()
def weights_of(model, ids):
    return model(ids, use_cache=False, output_routing=True).routing


@pytest.mark.parametrize("scheme", ROUTED)
def test_doing_nothing_changes_nothing(scheme):
    model, ids = routed(scheme), rows()
    before = logits(model, ids)
    with intervening(model):
        plain = logits(model, ids)
    with intervening(model, Intervention(), scale_scores(1.0)):
        assert torch.equal(logits(model, ids), plain)
    torch.testing.assert_close(plain, before, rtol=1e-5, atol=1e-5)
    assert torch.equal(logits(model, ids), before)


def test_a_removed_source_has_no_weight_and_the_others_share_it():
    model, ids = routed(), rows()
    scheme = model.base_model.depth
    with intervening(model):
        before = weights_of(model, ids)
    with intervening(model, remove_source(scheme, "delta 0", [2])):
        after = weights_of(model, ids)
    assert torch.equal(after[1], before[1])
    expected = before[2].clone()
    expected[..., 1] = 0
    torch.testing.assert_close(after[2], expected / expected.sum(-1, keepdim=True))
    with intervening(model, remove_source(scheme, "delta 0")):
        everywhere = weights_of(model, ids)
    assert all((everywhere[site][..., 1] == 0).all() for site in range(1, 6))


def test_uniform_fixed_and_scaled_weights():
    model, ids = routed(), rows()
    before = weights_of(model, ids)
    with intervening(model, uniform_weights()):
        torch.testing.assert_close(weights_of(model, ids)[3], torch.full((4, 24, 4), 0.25))
    with intervening(model, fixed_weights({3: [0.7, 0.1, 0.2, 0.0]})):
        after = weights_of(model, ids)
        torch.testing.assert_close(after[3], torch.tensor([0.7, 0.1, 0.2, 0.0]).expand(4, 24, 4))
        torch.testing.assert_close(after[2], before[2])
    with intervening(model, scale_scores(2.0)):
        squared = before[1].square()  # site 1 reads before anything has changed
        expected = squared / squared.sum(-1, keepdim=True)
        torch.testing.assert_close(weights_of(model, ids)[1], expected, rtol=1e-4, atol=1e-5)


def test_without_the_routed_term_a_model_is_the_standard_one():
    model, ids = routed("delta"), rows()
    unrouted = routed("delta", std=0.0)
    with intervening(model, drop_routed(model.base_model.depth)):
        assert torch.equal(logits(model, ids), logits(unrouted, ids))
    with intervening(model, uniform_weights()):  # the same thing, where banks sum to the stream
        torch.testing.assert_close(logits(model, ids), logits(unrouted, ids), rtol=0, atol=1e-5)


def test_dropped_at_one_site_alone():
    model, ids = routed("attnres"), rows()
    reads = {}

    class Keep(dares.schemes.Watcher):
        def on_read(self, state, site, read):
            reads[site] = torch.equal(read, state.stream)

    scheme = model.base_model.depth
    scheme.watcher = Keep()
    with intervening(model, drop_routed(scheme, [3])):
        logits(model, ids)
    scheme.watcher = None
    assert [site for site, same in reads.items() if same] == [0, 3]


@pytest.mark.parametrize("backend", ["auto", "grouped", "naive"])
def test_an_exception_leaves_the_model_as_it_was(backend):
    model, ids = routed("delta_block"), rows()
    scheme = model.base_model.depth
    scheme.backend = backend
    before, parts = logits(model, ids), dict(vars(scheme))
    with pytest.raises(ZeroDivisionError), intervening(model, uniform_weights()):
        assert logits(model, ids).sum() / 0 == 1 // 0
    assert scheme.backend == backend
    assert vars(scheme) == parts
    assert torch.equal(logits(model, ids), before)


def test_an_exception_inside_a_pass():
    model, ids = routed(), rows()
    before = logits(model, ids)

    def fail(site, scores):
        raise RuntimeError("at a site")

    with pytest.raises(RuntimeError, match="at a site"), intervening(model, Intervention(fail)):
        logits(model, ids)
    assert torch.equal(logits(model, ids), before)


def test_two_at_once_are_given_to_one_call():
    model, ids = routed(), rows()
    scheme = model.base_model.depth
    both = remove_source(scheme, "embedding"), scale_scores(0.0)
    with intervening(model, *reversed(both)):
        assert weights_of(model, ids)[2][0, 0].tolist() == pytest.approx([0, 0.5, 0.5])
    with (
        intervening(model, both[0]),
        pytest.raises(ValueError, match="at work already: give all of them to one call"),
        intervening(model, both[1]),
    ):
        pass


def test_bad_interventions():
    model = routed()
    scheme = model.base_model.depth
    with pytest.raises(ValueError, match="unknown source 'delta 9'; did you mean 'delta"):
        remove_source(scheme, "delta 9")
    with pytest.raises(ValueError, match="site 1: unknown source 'delta 3'"):
        remove_source(scheme, "delta 3", [1])
    with pytest.raises(ValueError, match=r"site 0 routes nothing: choose among \[1, 2, 3, 4, 5\]"):
        drop_routed(scheme, [0])
    with pytest.raises(ValueError, match="factor must be zero or more, got -1"):
        scale_scores(-1)
    nothing = [remove_source(scheme, source, [1]) for source in ("embedding", "delta 0")]
    with (
        pytest.raises(ValueError, match="site 1 has no source left to read"),
        intervening(model, *nothing),
    ):
        logits(model, rows())
    with (
        pytest.raises(ValueError, match="scheme 'ddl' has no routing weights"),
        intervening(routed("ddl")),
    ):
        pass
