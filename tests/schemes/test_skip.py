"""A fixed skip from the embedding: the formula, every family, and why it does not convert."""

import pytest
import torch

import dares
from dares.config import SkipConfig, config_from_dict
from tests.models.families import CONFIGS, tiny_config, tiny_model, tokens
from tests.schemes.passes import branches

WIDTH, SITES = 5, 6


def build(parallel=False):
    return dares.build_scheme(SkipConfig(), width=WIDTH, sites=SITES, parallel=parallel)


def written_out(start, matrices, per_layer):
    """Sites of a parallel layer all read the stream that the layer before it left."""
    stream = start
    for first in range(0, SITES, per_layer):
        read = stream + start if first else stream
        stream = stream + sum(torch.tanh(read @ m) for m in matrices[first : first + per_layer])
    return stream


@pytest.mark.parametrize("parallel", [False, True])
def test_equals_the_formula(parallel):
    torch.manual_seed(2)
    start = torch.randn(2, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    matrices = branches(SITES, WIDTH).requires_grad_()
    scheme, per_layer = build(parallel), 2 if parallel else 1
    state = scheme.start(start)
    for first in range(0, SITES, per_layer):
        sites = range(first, first + per_layer)
        reads = [scheme.read(state, site) for site in sites]
        for site, read in zip(sites, reads, strict=True):
            scheme.write(state, site, torch.tanh(read @ matrices[site]))
    outputs = [scheme.finish(state), written_out(start, matrices, per_layer)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
    pull = torch.randn_like(outputs[0])
    ours, theirs = (torch.autograd.grad(out, [start, matrices], pull) for out in outputs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert not list(scheme.parameters())


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_trains_under_it_and_refuses_to_convert(family):
    model = dares.from_config(tiny_config(family), SkipConfig())
    ids = tokens()
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(ValueError, match="would change the model: a fixed skip adds the embedding"):
        dares.convert(tiny_model(family), SkipConfig())


def test_is_saved_and_found_again(tmp_path):
    from transformers import AutoModelForCausalLM

    model = dares.from_config(tiny_config("qwen3"), SkipConfig()).eval()
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)
    assert config_from_dict(SkipConfig().to_dict()) == SkipConfig()


def test_one_parallel_layer_reads_the_embedding_alone():
    config = SkipConfig()
    assert dares.build_scheme(config, width=4, sites=2, parallel=True).identity_obstacle() is None
    assert "from the start" in dares.build_scheme(config, width=4, sites=2).identity_obstacle()
