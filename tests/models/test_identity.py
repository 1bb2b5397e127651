"""A converted model gives the same logits, in every family."""

import pytest
import torch

import dares
from tests.models.families import CONFIGS, OTHERS, SCHEMES, relative_difference, tiny_model, tokens


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("embedding_std", [0.02, 1.0])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", CONFIGS)
def test_converted_logits_are_the_originals(family, scheme, embedding_std, attention):
    model = tiny_model(family, embedding_std=embedding_std, attention=attention)
    ids = tokens()
    with torch.no_grad():
        before = model(ids).logits
        routed = dares.convert(model, SCHEMES[scheme])
        after = routed(ids).logits
        hidden = model(ids, output_hidden_states=True).hidden_states
        routed_hidden = routed(ids, output_hidden_states=True).hidden_states
    assert routed.config._attn_implementation == attention
    for mine, theirs in zip(routed_hidden, hidden, strict=True):
        assert relative_difference(mine, theirs) < 1e-5
    if scheme == "gate":
        assert torch.equal(after, before)
    assert relative_difference(after, before) < 1e-5


@pytest.mark.parametrize("scheme", ["hyper", "mhc", "dense"])
@pytest.mark.parametrize("family", CONFIGS)
def test_the_other_schemes_too(family, scheme):
    model, ids = tiny_model(family), tokens()
    with torch.no_grad():
        before = model(ids).logits
        after = dares.convert(model, OTHERS[scheme])(ids).logits
    assert relative_difference(after, before) < 1e-5
    # mhc's weights are sigmoids and sums; in a parallel layer hyper adds one delta after the other
    if scheme == "dense" or (scheme == "hyper" and family != "gpt_neox"):
        assert torch.equal(after, before)


@pytest.mark.parametrize("family", CONFIGS)
def test_deep_delta_learning_is_no_residual(family):
    with pytest.raises(ValueError, match="would change the model: Deep Delta Learning moves"):
        dares.convert(tiny_model(family), OTHERS["ddl"])


@pytest.mark.parametrize("family", CONFIGS)
def test_new_and_base_models_draw_the_same_weights(family):
    from tests.models.families import tiny_config

    torch.manual_seed(5)
    base = dares.from_config(tiny_config(family), dares.preset("standard"))
    torch.manual_seed(5)
    routed = dares.from_config(tiny_config(family), SCHEMES["delta_block"])
    torch.manual_seed(5)
    drawn = dares.from_config(tiny_config(family), dares.preset("delta", query_std=0.02))
    torch.manual_seed(5)
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_config(tiny_config(family))
    expected = theirs.state_dict()
    for model in (base, routed, drawn):
        state = {k: v for k, v in model.state_dict().items() if ".depth." not in k}
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[k], expected[k]) for k in expected)
    assert drawn.base_model.depth.query.std() > 0.01
    with torch.no_grad():
        ids = tokens()
        before = theirs.eval()(ids).logits
        assert torch.equal(base.eval()(ids).logits, before)
        assert relative_difference(routed.eval()(ids).logits, before) < 1e-5


def test_sequential_gpt_neox_too():
    from tests.models.families import tiny_config

    torch.manual_seed(0)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(
        tiny_config("gpt_neox", use_parallel_residual=False)
    ).eval()
    for config in SCHEMES.values():
        routed = dares.convert(model, config)
        assert routed.conversion.relative_difference < 1e-5
        assert not routed.base_model.depth.parallel
