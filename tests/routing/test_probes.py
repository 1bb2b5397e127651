"""What probes say of models whose answer is known."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

import dares
from dares.routing import record
from dares.routing.probes import measure, plan_probes, seconds_for
from tests.routing.models import routed, rows

VOCABULARY = 16


def counting_model():
    """Its final norm finds the next token in the embedding, and nowhere else.

    An embedding is 1 in its first entry and one-hot in the next 16; sublayers write noise that is 0
    in the first entry. The final query asks for the first entry, and the head adds one to a token.
    """
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=False,
    )
    model = dares.from_config(config, dares.preset("attnres")).eval()
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight.zero_()
        embedding[:, 0] = 1
        embedding[:, 1 : 1 + VOCABULARY] = torch.eye(VOCABULARY)
        for layer in model.model.layers:
            for matrix in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                matrix.normal_()[0] = 0
        model.lm_head.weight.zero_()
        for token in range(VOCABULARY):
            model.lm_head.weight[(token + 1) % VOCABULARY, 1 + token] = 5
        model.model.depth.query[-1, 0] = 20
    return model


def counting_rows(count=4, length=20):
    return (torch.arange(length) + torch.arange(count)[:, None]) % VOCABULARY


def test_the_only_useful_source():
    model, batches = counting_model(), [counting_rows()]
    scheme = model.base_model.depth
    recording = record(model, batches)
    assert recording.loss < 0.01
    probes = plan_probes(scheme, recording.mean_weights, "all")
    effects = {effect.name: effect for effect in measure(model, batches, probes).effects}
    needed = effects["without embedding at final norm"]
    assert needed.difference > 1
    assert needed.low > 1
    assert needed.mass > 0.99
    for source in ("delta 0", "delta 1", "delta 2", "delta 3"):
        assert abs(effects[f"without {source} at final norm"].difference) < 1e-3
    assert effects["without embedding"].difference > 1
    assert effects["uniform weights"].difference > 1
    assert effects["no routed term anywhere"].difference > 0.5
    assert abs(effects["each site's mean weights"].difference) < 1e-3  # all tokens choose alike
    assert effects["scores x 0.5"].difference > -1e-3


def test_weights_that_are_not_used():
    """Where sublayers read what they like but write nothing, no probe can matter."""
    model, ids = routed("delta"), rows()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    probes = plan_probes(model.base_model.depth, record(model, [ids]).mean_weights, "all")
    results = measure(model, [ids], probes)
    assert all(effect.difference == 0 for effect in results.effects)
    assert all(effect.low == effect.high == 0 for effect in results.effects)


def test_a_probe_is_a_plain_loss_difference():
    model, ids = routed("delta_block"), rows(6, 16)
    recording = record(model, [ids])
    probes = plan_probes(model.base_model.depth, recording.mean_weights)
    results = measure(model, [ids[:4], ids[4:]], probes)
    assert results.loss == pytest.approx(recording.loss, abs=1e-5)
    assert (results.predicted, results.windows) == (90, 6)
    with torch.no_grad():
        unrouted = routed("delta_block", std=0.0)
        expected = unrouted(ids, labels=ids).loss.item() - model(ids, labels=ids).loss.item()
    assert results.effects[0].difference == pytest.approx(expected, abs=1e-5)
    for effect in results.effects:
        assert effect.low <= effect.difference <= effect.high
    again = measure(model, [ids], probes)
    for one, other in zip(results.effects, again.effects, strict=True):
        assert one.difference == pytest.approx(other.difference, abs=1e-6)
        assert one.low == pytest.approx(other.low, abs=1e-6)


def test_levels():
    model = routed("delta_block")
    scheme, means = model.base_model.depth, record(model, [rows()]).mean_weights
    assert plan_probes(scheme, means, "none") == []
    fast, everything = (plan_probes(scheme, means, level) for level in ("fast", "all"))
    pairs = sum(len(weights) for weights in means.values())
    assert len(everything) == len(fast) + pairs
    assert len({probe.name for probe in everything}) == len(everything)
    masses = np.array([probe.mass for probe in everything if probe.kind == "remove_at"])
    assert masses.sum() == pytest.approx(len(means))  # each site's weights sum to one
    with pytest.raises(ValueError, match="unknown --probes 'quick'"):
        plan_probes(scheme, means, "quick")


def test_probes_state_their_cost_and_count_their_passes():
    model, ids = routed("delta_block"), rows()
    probes = plan_probes(model.base_model.depth, record(model, [ids]).mean_weights)
    one = seconds_for(model, ids, 1, 0)
    assert 0 < one < 5
    passes = []
    measure(model, [ids[:2], ids[2:]], probes, progress=passes.append)
    assert sum(passes) == 2 * (1 + len(probes))


@pytest.mark.parametrize(
    ("scheme", "batches", "message"),
    [
        ("standard", [rows()], "scheme 'standard' has no routing weights"),
        ("delta", [], "no rows to probe"),
        ("delta", [rows(1)], "at least 2 windows to resample, got 1"),
    ],
)
def test_bad_input(scheme, batches, message):
    with pytest.raises(ValueError, match=message):
        measure(routed(scheme), batches, [])
