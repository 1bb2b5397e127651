"""Conversion: nothing copied, nothing half-done, no drift."""

import dataclasses
import functools

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import dares
from tests.models.families import CONFIGS, SCHEMES, tiny_config, tiny_model, tokens, trained


@pytest.mark.parametrize("family", CONFIGS)
def test_weights_are_shared_not_copied(family):
    model = tiny_model(family)
    before = {name: p.data_ptr() for name, p in model.named_parameters()}
    routed = dares.convert(model, SCHEMES["delta"])
    after = {n: p.data_ptr() for n, p in routed.named_parameters() if ".depth." not in n}
    assert after == before
    assert all(not b.is_meta for b in routed.buffers())


def test_the_report_says_what_was_measured():
    routed = dares.convert(tiny_model("llama"), SCHEMES["delta_block"], probe=tokens(3, 9))
    report = routed.conversion
    assert dataclasses.asdict(report) == {
        "difference": 0.0,
        "relative_difference": 0.0,
        "probe_tokens": 27,
        "added_parameters": 2 * 32 * 5,
    }


def test_flags_and_settings_survive():
    model = tiny_model("qwen3").train()
    model.base_model.layers[0].requires_grad_(False)
    model.generation_config.max_length = 33
    model.to(torch.bfloat16)
    routed = dares.convert(model, SCHEMES["delta"])
    assert routed.training
    assert routed.dtype == torch.bfloat16
    assert routed.generation_config.max_length == 33
    frozen = {n for n, p in routed.named_parameters() if not p.requires_grad}
    assert frozen == {n for n, p in model.named_parameters() if not p.requires_grad}
    assert routed.conversion.difference == 0.0
    assert routed.base_model.depth.query.dtype == torch.float32
    assert routed.lm_head.weight is routed.get_input_embeddings().weight


def test_modes_of_every_module_survive():
    """Dropout that is on in one layer alone stays so, in the model and in what it becomes."""
    model = tiny_model("gpt2")
    model.transformer.h[1].train()
    before = {name: module.training for name, module in model.named_modules()}
    routed = dares.convert(model, SCHEMES["delta"])
    for each in (model, routed):
        now = {n: m.training for n, m in each.named_modules() if n in before}
        assert now == before
    assert not routed.training


def test_what_is_set_on_one_model_stays_there():
    model = tiny_model("llama")
    model.gradient_checkpointing_enable()
    routed = dares.convert(model, SCHEMES["delta"])
    assert routed.is_gradient_checkpointing
    routed.generation_config.max_length = 7
    assert model.generation_config.max_length != 7


def test_short_models_convert():
    config = GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=50, n_positions=5)
    routed = dares.convert(GPT2LMHeadModel(config), dares.preset("delta"))
    assert routed.conversion.probe_tokens == 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_new_models_have_the_dtype_of_their_config(dtype):
    config = tiny_config("llama", dtype=dtype)
    model = dares.from_config(config, dares.preset("delta"))
    assert model.lm_head.weight.dtype == dtype
    assert model.base_model.depth.gain.dtype == torch.float32
    again = dares.from_config(model.config, dares.preset("delta_block", block=2))
    assert again.config.depth["block"] == 2


def test_routers_made_under_inference_mode_can_be_trained():
    with torch.inference_mode():
        routed = dares.convert(tiny_model("llama"), dares.preset("delta"))
    assert routed.base_model.depth.query.requires_grad
    assert not routed.base_model.depth.query.is_inference()


def test_the_backend_is_taken_at_its_word():
    for name in ("naive", "grouped"):
        routed = dares.convert(tiny_model("llama"), dares.preset("delta"), backend=name)
        assert routed.base_model.depth.backend == name
    with pytest.raises(ValueError, match="unknown backend 'fast'"):
        dares.convert(tiny_model("llama"), dares.preset("delta"), backend="fast")
    with pytest.raises(ValueError, match="unknown backend 'fast'"):
        dares.from_config(tiny_config("llama"), dares.preset("delta"), backend="fast")


@pytest.mark.parametrize("family", CONFIGS)
def test_unconvert_gives_the_base_back(family):
    model = tiny_model(family, attention="eager")
    config = model.config.to_dict()
    routed = dares.convert(model, SCHEMES["attnres_block"])
    base = dares.unconvert(routed)
    assert type(base) is type(model)
    assert base.config._attn_implementation == "eager"
    assert base.config.to_dict() == config
    with torch.no_grad():
        assert torch.equal(base(tokens()).logits, model(tokens()).logits)
    assert {n: p.data_ptr() for n, p in base.named_parameters()} == {
        n: p.data_ptr() for n, p in model.named_parameters()
    }


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (dares.preset("cumulative"), "does not sum to the stream; merge='gate'"),
        (dares.preset("cumulative", merge="add"), "does not sum to the stream"),
        (dares.preset("delta", sources="normed"), "does not sum to the stream"),
        (dares.preset("delta", sources="projected"), "does not sum to the stream"),
        (dares.preset("delta_block", block=2, running=False), "without the running block"),
        (dares.preset("delta", read_scale="none"), "read_scale='none' multiplies"),
        (dares.preset("delta", query_std=0.02), "the queries are not zero"),
    ],
)
def test_drift_is_refused_and_the_model_stays(config, reason):
    model = tiny_model("llama")
    with torch.no_grad():
        before = model(tokens()).logits
    with pytest.raises(ValueError, match=f"conversion would change the model: .*{reason}") as error:
        dares.convert(model, config)
    assert "allow_drift=True" in str(error.value)
    with torch.no_grad():
        assert torch.equal(model(tokens()).logits, before)
    routed = dares.convert(model, config, allow_drift=True)
    assert routed.conversion.relative_difference > 0
    with pytest.raises(ValueError, match="the base model would give other logits"):
        dares.unconvert(routed)


def test_measured_drift_is_refused_whatever_the_scheme_says(monkeypatch):
    monkeypatch.setattr(dares.schemes.RoutedScheme, "identity_obstacle", lambda self: None)
    with pytest.raises(ValueError, match="the logits move by .* above 0.0001"):
        dares.convert(tiny_model("olmo2"), dares.preset("delta", read_scale="none"))


@pytest.mark.parametrize("sources", ["cumulative", "normed", "projected", "block", "sublayer"])
def test_gates_convert_any_bank(sources):
    block = {"block": 2, "running": False} if sources == "block" else {}
    config = dares.DepthConfig(sources=sources, merge="gate", **block)
    assert dares.convert(tiny_model("gemma3"), config).conversion.difference == 0.0


def test_reentrant_checkpointing_is_refused():
    model = dares.from_config(tiny_config("llama"), dares.preset("delta"))
    for target in (model, model.base_model):
        with pytest.raises(ValueError, match="pass use_reentrant=False"):
            target.gradient_checkpointing_enable({"use_reentrant": True})
    assert not model.is_gradient_checkpointing
    # and where transformers' own switch is passed by
    reentrant = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=True)
    model._set_gradient_checkpointing(True, reentrant)
    with pytest.raises(ValueError, match="pass use_reentrant=False"):
        model.train()(tokens())


def test_fewer_layers_than_were_built():
    model = dares.from_config(tiny_config("llama"), dares.preset("attnres"))
    model.config.num_hidden_layers = 2
    with pytest.raises(ValueError, match="only 4 of 6 sites ran"):
        model(tokens())


def test_a_layer_alone_says_what_to_do():
    model = trained("llama", "delta")
    with pytest.raises(ValueError, match="called outside its model"):
        model.model.layers[0](torch.randn(1, 2, 32))


@torch.no_grad()
def test_a_hook_that_changes_the_stream_is_heeded():
    model = trained("llama", "delta")
    plain = model(tokens()).logits

    def push(module, args, output):
        return (output[0] + 1.0, *output[1:])

    handle = model.model.layers[0].register_forward_hook(push)
    try:
        assert not torch.allclose(model(tokens()).logits, plain)
    finally:
        handle.remove()
    assert torch.equal(model(tokens()).logits, plain)
