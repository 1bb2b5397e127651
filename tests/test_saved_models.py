"""Routed models on disk: loaded as they were, damage named, fresh routers where there are none."""

import json
import pickle

import pytest
import torch
from transformers import AutoModelForCausalLM

import dares
from dares.models import family_of
from dares.models.configs import to_routed_config
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
def test_a_base_checkpoint_loaded_as_routed_gets_fresh_routers(family, tmp_path, request):
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


def test_a_saved_projection_is_loaded(tmp_path):
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


def test_a_base_checkpoint_without_a_scheme(tmp_path):
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
def test_a_damaged_config(tmp_path, change, message):
    trained("llama", "delta_block").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    change(config["depth"])
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_config_without_depth(tmp_path):
    trained("llama", "delta_block").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["depth"]
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="has no 'depth'"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 500, -1000])
def test_a_truncated_file(tmp_path, keep):
    trained("llama", "delta").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ValueError, match="damaged .* copy or download it again"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_weights_of_another_scheme(tmp_path):
    trained("llama", "delta").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["depth"]["final"] = "routed"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="do not fit its config: was 'depth' changed"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_device_map_over_two_devices(tmp_path):
    model = trained("llama", "delta")
    model.save_pretrained(tmp_path)
    names = ["model.embed_tokens", "model.norm", "model.rotary_emb", "model.depth", "lm_head"]
    split = {**dict.fromkeys(names, "cpu"), "model.layers": "disk"}
    with pytest.raises(ValueError, match="on cpu, disk: a routed model needs one device"):
        AutoModelForCausalLM.from_pretrained(
            tmp_path, device_map=split, offload_folder=tmp_path / "offload"
        )
    assert AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu").device.type == "cpu"


def test_only_safetensors(tmp_path):
    model = trained("llama", "delta")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="use_safetensors=False: routed models load safetensors only"
    ):
        AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=False)


def test_routers_stay_in_float32(tmp_path):
    trained("llama", "delta").save_pretrained(tmp_path)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.lm_head.weight.dtype == torch.bfloat16
    assert torch.equal(
        half.base_model.depth.query, trained("llama", "delta").base_model.depth.query
    )


def test_pickle():
    # not a shared one: transformers' hooks for output_hidden_states cannot be pickled
    model = dares.convert(tiny_model("gemma3"), SCHEMES["delta"])
    again = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        assert torch.equal(again(tokens()).logits, model(tokens()).logits)
