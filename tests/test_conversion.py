"""Conversion: nothing copied, nothing half-done, every refusal explained."""

import dataclasses
import functools
import json

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForSequenceClassification,
)

import dares
from tests.models.families import (
    CONFIGS,
    SCHEMES,
    relative_difference,
    tiny_config,
    tiny_model,
    tokens,
    trained,
)


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


class TestRefusals:
    def test_unknown_family(self):
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=50,
                hidden_size=8,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=8,
            )
        )
        with pytest.raises(
            ValueError,
            match="no routed family for model_type 'bert'; there are: "
            "gemma3_text, .* qwen3; docs/new-family.md",
        ):
            dares.convert(model, dares.preset("delta"))
        with pytest.raises(ValueError, match="no routed family for model_type 'bert'"):
            dares.from_config(model.config, dares.preset("delta"))

    def test_another_head(self):
        model = LlamaForSequenceClassification(tiny_config("llama"))
        with pytest.raises(ValueError, match="takes LlamaForCausalLM .* got LlamaForSequenceClass"):
            dares.convert(model, dares.preset("delta"))

    def test_not_a_model(self):
        with pytest.raises(ValueError, match="needs a transformers language model, got Linear"):
            dares.convert(torch.nn.Linear(2, 2), dares.preset("delta"))

    def test_twice(self):
        routed = dares.convert(tiny_model("llama"), dares.preset("delta"))
        with pytest.raises(ValueError, match="DaresLlamaForCausalLM is routed already"):
            dares.convert(routed, dares.preset("delta"))

    def test_not_a_scheme(self):
        with pytest.raises(ValueError, match="depth must be a scheme config .* got 'delta'"):
            dares.convert(tiny_model("llama"), "delta")

    def test_block_too_large(self):
        with pytest.raises(
            ValueError, match=r"block must be between 1 and 3 \(the model's layers\)"
        ):
            dares.convert(tiny_model("llama"), dares.preset("delta_block", block=4))
        with pytest.raises(ValueError, match="block must be between 1 and 3"):
            dares.from_config(tiny_config("llama"), dares.preset("delta_block", block=4))

    def test_a_changed_module(self):
        model = tiny_model("llama")
        model.model.layers[1].mlp.act_fn = torch.nn.Identity()
        with pytest.raises(
            ValueError, match="layers.1.mlp.act_fn is a Identity where the family has"
        ):
            dares.convert(model, dares.preset("delta"))

    def test_an_added_parameter(self):
        model = tiny_model("llama")
        model.model.layers[1].extra = torch.nn.Parameter(torch.ones(1))
        with pytest.raises(ValueError, match="unmodified model"):
            dares.convert(model, dares.preset("delta"))

    def test_another_shape(self):
        model = tiny_model("llama")
        model.model.norm.weight = torch.nn.Parameter(torch.ones(31))
        with pytest.raises(ValueError, match=r"differ in 'model.norm.weight' \(31,\)"):
            dares.convert(model, dares.preset("delta"))

    def test_meta_weights(self):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(tiny_config("llama"))
        with pytest.raises(ValueError, match="weights are on meta: load it onto one real device"):
            dares.convert(model, dares.preset("delta"))

    def test_nan_weights(self):
        model = tiny_model("llama")
        torch.nn.init.constant_(model.model.norm.weight, float("nan"))
        with pytest.raises(ValueError, match="logits that are not finite"):
            dares.convert(model, dares.preset("delta"))

    def test_two_dtypes(self):
        model = tiny_model("llama")
        model.model.layers[1].half()
        with pytest.raises(ValueError, match="the model itself does not run on the probe"):
            dares.convert(model, dares.preset("delta"))

    def test_bad_configs(self):
        with pytest.raises(ValueError, match="config must be a transformers config, got str"):
            dares.from_config("qwen3", dares.preset("delta"))
        with pytest.raises(ValueError, match="depth must be a scheme config .* got None"):
            dares.from_config(tiny_config("llama"), None)

    def test_a_hook_that_changes_the_base(self):
        model = tiny_model("llama")
        model.model.layers[0].register_forward_hook(lambda m, a, out: out * 2)
        with pytest.raises(ValueError, match="the logits move by .* a hook or a changed attribute"):
            dares.convert(model, dares.preset("delta"))

    def test_compiled(self):
        with pytest.raises(ValueError, match="convert it before it is compiled"):
            dares.convert(torch.compile(tiny_model("llama")), dares.preset("delta"))

    def test_bad_probes(self):
        model = tiny_model("llama")
        with pytest.raises(ValueError, match="probe must be a tensor of token ids, got list"):
            dares.convert(model, dares.preset("delta"), probe=[[1]])
        with pytest.raises(ValueError, match="probe holds token id -1"):
            dares.convert(model, dares.preset("delta"), probe=torch.tensor([[-1, 5]]))
        with pytest.raises(ValueError, match="probe holds token id 97, the vocabulary has 97"):
            dares.convert(model, dares.preset("delta"), probe=torch.tensor([[97]]))
        with pytest.raises(ValueError, match=r"probe must be token ids \[batch, tokens\]"):
            dares.convert(model, dares.preset("delta"), probe=torch.tensor([1]))

    def test_cross_attention(self):
        config = GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=50, add_cross_attention=True)
        with pytest.raises(ValueError, match="add_cross_attention=True"):
            dares.convert(GPT2LMHeadModel(config), dares.preset("delta"))

    def test_unconvert_of_a_plain_model(self):
        with pytest.raises(ValueError, match="needs a routed language model, got LlamaForCausalLM"):
            dares.unconvert(tiny_model("llama"))


class TestFiles:
    @pytest.mark.parametrize("family", CONFIGS)
    def test_a_base_checkpoint_loaded_as_routed_gets_fresh_routers(self, family, tmp_path, request):
        from dares.models import family_of
        from dares.models.configs import to_routed_config

        model = tiny_model(family)
        model.save_pretrained(tmp_path)
        # unset memory is filled with NaN, so that it would show
        torch.use_deterministic_algorithms(True)
        request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
        cls = family_of(model.config).causal_lm
        for scheme, config in SCHEMES.items():
            routed = cls.from_pretrained(tmp_path, depth=config)
            assert routed.base_model.depth.identity_obstacle() is None
            assert torch.equal(
                routed.base_model.depth.gain, torch.ones_like(routed.base_model.depth.gain)
            )
            with torch.no_grad():
                out = routed.eval()(tokens()).logits
                assert relative_difference(out, model(tokens()).logits) < 1e-5, scheme
        by_auto = AutoModelForCausalLM.from_pretrained(
            tmp_path, config=to_routed_config(model.config, SCHEMES["delta"])
        )
        assert by_auto.base_model.depth.identity_obstacle() is None

    def test_a_saved_projection_is_loaded(self, tmp_path):
        config = dares.DepthConfig(sources="projected", merge="add")
        model = dares.from_config(tiny_config("llama"), config)
        matrix = model.base_model.depth.sources.projection
        matrix.copy_(matrix.flip(0))  # not what the seed gives
        model.save_pretrained(tmp_path)
        again = AutoModelForCausalLM.from_pretrained(tmp_path)
        assert torch.equal(again.base_model.depth.sources.projection, matrix)
        tiny_model("llama").save_pretrained(tmp_path / "base")
        fresh = type(model).from_pretrained(tmp_path / "base", depth=config)
        torch.testing.assert_close(fresh.base_model.depth.sources.projection, matrix.flip(0))

    def test_a_base_checkpoint_without_a_scheme(self, tmp_path):
        tiny_model("llama").save_pretrained(tmp_path)
        cls = type(trained("llama", "delta"))
        with pytest.raises(ValueError, match="'dares_llama' config has no 'depth'.*dares.convert"):
            cls.from_pretrained(tmp_path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda depth: depth.update(blok=2),
                "unknown DepthConfig field 'blok'; did you mean 'block'",
            ),
            (lambda depth: depth.pop("merge"), "the depth config lacks 'merge'"),
            (lambda depth: depth.update(block=9), "block must be between 1 and 3"),
            (
                lambda depth: depth.update(scheme="rooted"),
                "unknown scheme 'rooted'; did you mean 'routed'",
            ),
        ],
    )
    def test_a_damaged_config(self, tmp_path, change, message):
        trained("llama", "delta_block").save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        change(config["depth"])
        path.write_text(json.dumps(config))
        with pytest.raises(ValueError, match=message):
            AutoModelForCausalLM.from_pretrained(tmp_path)

    def test_a_config_without_depth(self, tmp_path):
        trained("llama", "delta_block").save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        del config["depth"]
        path.write_text(json.dumps(config))
        with pytest.raises(ValueError, match="has no 'depth'"):
            AutoModelForCausalLM.from_pretrained(tmp_path)

    @pytest.mark.parametrize("keep", [0, 5, 500, -1000])
    def test_a_truncated_file(self, tmp_path, keep):
        trained("llama", "delta").save_pretrained(tmp_path)
        weights = tmp_path / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:keep])
        with pytest.raises(ValueError, match="damaged .* copy or download it again"):
            AutoModelForCausalLM.from_pretrained(tmp_path)

    def test_weights_of_another_scheme(self, tmp_path):
        trained("llama", "delta").save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        config = json.loads(path.read_text())
        config["depth"]["final"] = "routed"
        path.write_text(json.dumps(config))
        with pytest.raises(ValueError, match="do not fit its config: was 'depth' changed"):
            AutoModelForCausalLM.from_pretrained(tmp_path)

    def test_a_device_map_over_two_devices(self, tmp_path):
        model = trained("llama", "delta")
        model.save_pretrained(tmp_path)
        names = ["model.embed_tokens", "model.norm", "model.rotary_emb", "model.depth", "lm_head"]
        split = {**dict.fromkeys(names, "cpu"), "model.layers": "disk"}
        with pytest.raises(ValueError, match="on cpu, disk: a routed model needs one device"):
            AutoModelForCausalLM.from_pretrained(
                tmp_path, device_map=split, offload_folder=tmp_path / "offload"
            )
        assert AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu").device.type == "cpu"

    def test_only_safetensors(self, tmp_path):
        model = trained("llama", "delta")
        model.config.save_pretrained(tmp_path)
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
        with pytest.raises(OSError, match="safetensors"):
            AutoModelForCausalLM.from_pretrained(tmp_path)
        with pytest.raises(
            ValueError, match="use_safetensors=False: routed models load safetensors only"
        ):
            AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=False)

    def test_routers_stay_in_float32(self, tmp_path):
        trained("llama", "delta").save_pretrained(tmp_path)
        half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert half.lm_head.weight.dtype == torch.bfloat16
        assert torch.equal(
            half.base_model.depth.query, trained("llama", "delta").base_model.depth.query
        )

    def test_pickle(self):
        import pickle

        # not a shared one: transformers' hooks for output_hidden_states cannot be pickled
        model = dares.convert(tiny_model("gemma3"), SCHEMES["delta"])
        again = pickle.loads(pickle.dumps(model))
        with torch.no_grad():
            assert torch.equal(again(tokens()).logits, model(tokens()).logits)


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
