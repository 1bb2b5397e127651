"""Routers alone: small, exact on the base they belong to, refused on any other."""

import copy
import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

import dares
from dares.adapters import freeze_base, weights_fingerprint
from tests.models.families import ALL, CONFIGS, tiny_model, tokens

FILES = {"routers.json", "routers.safetensors"}


def train_open_parameters(model, steps=3):
    """A few steps of whatever requires a gradient."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    for seed in range(steps):
        ids = tokens(seed=seed)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def with_trained_routers(scheme="delta_block", family="llama"):
    drifts = ALL[scheme].scheme == "ddl"
    routed = dares.convert(tiny_model(family), ALL[scheme], allow_drift=drifts)
    return train_open_parameters(freeze_base(routed))


@torch.no_grad()
def logits(model):
    return model.eval()(tokens()).logits


@pytest.mark.parametrize("scheme", ALL)
def test_every_scheme_comes_back_on_the_untouched_base(scheme, tmp_path):
    model = with_trained_routers(scheme)
    dares.save_routers(model, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    base = tiny_model("llama")
    assert not torch.equal(logits(model), logits(base))
    loaded = dares.load_routers(base, tmp_path)
    assert torch.equal(logits(loaded), logits(model))
    assert loaded.base_model.depth.config == ALL[scheme]
    assert loaded.lm_head.weight is base.lm_head.weight  # no second copy of the base


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family(family, tmp_path):
    model = with_trained_routers(family=family)
    dares.save_routers(model, tmp_path)
    assert torch.equal(logits(dares.load_routers(tiny_model(family), tmp_path)), logits(model))


def test_onto_a_routed_model_in_place(tmp_path):
    model = with_trained_routers()
    dares.save_routers(model, tmp_path)
    routed = dares.convert(tiny_model("llama"), ALL["delta_block"])
    query = routed.base_model.depth.query
    assert dares.load_routers(routed, tmp_path) is routed
    assert routed.base_model.depth.query is query  # an optimizer made before goes on
    assert torch.equal(logits(routed), logits(model))


def test_routers_of_135m_are_small(tmp_path):
    """30 layers of width 576, as SmolLM2-135M has; what else is in a layer does not matter."""
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=576,
        num_hidden_layers=30,
        num_attention_heads=1,
        head_dim=2,
        intermediate_size=4,
    )
    model = freeze_base(dares.from_config(config, dares.preset("delta_block")))
    dares.save_routers(model, tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 300_000
    saved = load_file(tmp_path / "routers.safetensors")
    assert sum(tensor.numel() for tensor in saved.values()) == 4 * 576 * 30 - 2 * 576


def test_a_bf16_base_is_the_same_base_in_float32(tmp_path):
    narrow = tiny_model("llama").to(torch.bfloat16)
    assert weights_fingerprint(narrow) == weights_fingerprint(copy.deepcopy(narrow).float())
    model = freeze_base(dares.convert(narrow, ALL["delta"]))
    with torch.no_grad():
        model.base_model.depth.query.normal_()
    dares.save_routers(model, tmp_path)
    again = dares.load_routers(copy.deepcopy(narrow), tmp_path)
    assert again.base_model.depth.query.dtype == torch.float32
    assert torch.equal(logits(again), logits(model))
    dares.load_routers(copy.deepcopy(narrow).float(), tmp_path)


def test_beside_lora(tmp_path):
    """Saved both, loaded both, in either order of saving; the base is the same with LoRA in it."""
    routed = dares.convert(tiny_model("llama"), ALL["delta_block"])
    model = get_peft_model(routed, LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    model.get_base_model().base_model.depth.requires_grad_(True)
    train_open_parameters(model)
    model.save_pretrained(tmp_path / "lora")
    dares.save_routers(model, tmp_path / "routers")
    assert weights_fingerprint(model) == weights_fingerprint(tiny_model("llama"))

    loaded = dares.load_routers(tiny_model("llama"), tmp_path / "routers")
    assert not torch.equal(logits(loaded), logits(model))
    both = PeftModel.from_pretrained(loaded, tmp_path / "lora")
    assert torch.equal(logits(both), logits(model))

    # routers last, into what PEFT has wrapped
    routed = dares.convert(tiny_model("llama"), ALL["delta_block"])
    wrapped = PeftModel.from_pretrained(routed, tmp_path / "lora")
    assert dares.load_routers(wrapped, tmp_path / "routers") is wrapped
    assert torch.equal(logits(wrapped), logits(model))


# -- the base: which it is, and whether it was left alone ----------------------------------------


def test_any_changed_value_changes_the_fingerprint():
    model = tiny_model("llama")
    before = weights_fingerprint(model)
    for parameter in model.parameters():
        last = parameter.data.view(-1)[-1:]
        kept = last.clone()
        last += torch.finfo(torch.float32).eps * last.abs() + 1e-30
        assert not torch.equal(last, kept)
        assert weights_fingerprint(model) != before
        last.copy_(kept)
    assert weights_fingerprint(model) == before


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        (lambda: tiny_model("qwen2"), "its config has .*model_type='qwen2', not 'llama'"),
        (lambda: tiny_model("llama", embedding_std=0.03), "its weights are others"),
        (lambda: other_llama(rms_norm_eps=1e-3), "its config has rms_norm_eps=0.001, not 1e-06"),
        (lambda: other_llama(num_hidden_layers=2), "its config has .*num_hidden_layers=2, not 3"),
    ],
)
def test_another_base_is_refused(base, reason, tmp_path):
    dares.save_routers(with_trained_routers(), tmp_path)
    with pytest.raises(ValueError, match=f"belong to another base: {reason}"):
        dares.load_routers(base(), tmp_path)


def other_llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**{**tiny_model("llama").config.to_dict(), **changes}))


def test_another_scheme_is_refused(tmp_path):
    dares.save_routers(with_trained_routers(), tmp_path)
    other = dares.convert(tiny_model("llama"), ALL["delta"])
    with pytest.raises(ValueError, match="belong to another base: it is routed by DepthConfig"):
        dares.load_routers(other, tmp_path)


def test_a_base_that_was_trained_too(tmp_path):
    """Open to training it is refused, compared it is refused, and so is the untouched base."""
    tiny_model("llama").save_pretrained(tmp_path / "base")
    routed = dares.convert(tiny_model("llama"), ALL["delta_block"])
    with pytest.raises(ValueError, match="open to training.*save_pretrained"):
        dares.save_routers(routed, tmp_path / "routers")
    dares.save_routers(routed, tmp_path / "routers", base=tmp_path / "base")  # nothing has changed

    train_open_parameters(routed)
    with pytest.raises(ValueError, match="is not the base of these routers .its weights are other"):
        dares.save_routers(routed, tmp_path / "trained", base=tmp_path / "base")
    assert not (tmp_path / "trained").exists()
    dares.save_routers(freeze_base(routed), tmp_path / "trained")  # theirs is the base at hand
    assert torch.equal(
        logits(
            dares.load_routers(
                dares.convert(bare(routed), ALL["delta_block"]), tmp_path / "trained"
            )
        ),
        logits(routed),
    )
    with pytest.raises(ValueError, match="its weights are others"):
        dares.load_routers(tiny_model("llama"), tmp_path / "trained")


def bare(routed):
    """The plain model with the trained base's weights."""
    base = tiny_model("llama")
    base.load_state_dict({n: t for n, t in routed.state_dict().items() if ".depth." not in n})
    return base


# -- bad input -----------------------------------------------------------------------------------


def test_what_has_no_routers(tmp_path):
    with pytest.raises(ValueError, match="LlamaForCausalLM has no routers: convert it first"):
        dares.save_routers(tiny_model("llama"), tmp_path)
    plain = dares.convert(tiny_model("llama"), dares.preset("standard"))
    with pytest.raises(ValueError, match="'standard' owns no parameters"):
        dares.save_routers(plain, tmp_path)
    assert not list(tmp_path.iterdir())


def test_routers_that_peft_holds(tmp_path):
    routed = dares.convert(tiny_model("llama"), ALL["delta"])
    settings = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["depth"])
    with pytest.raises(ValueError, match="PEFT holds the routers itself"):
        dares.save_routers(get_peft_model(routed, settings), tmp_path)


def test_a_wrapped_base_without_routers(tmp_path):
    dares.save_routers(with_trained_routers(), tmp_path)
    wrapped = get_peft_model(tiny_model("llama"), LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(ValueError, match="wraps a model without routers: load the routers onto"):
        dares.load_routers(wrapped, tmp_path)


def test_folders_that_hold_no_routers(tmp_path):
    with pytest.raises(ValueError, match="there are no routers in .*: routers.json is missing"):
        dares.load_routers(tiny_model("llama"), tmp_path)

    dares.save_routers(with_trained_routers(), tmp_path)
    whole, described = (
        (tmp_path / "routers.safetensors").read_bytes(),
        (tmp_path / "routers.json").read_text(),
    )
    (tmp_path / "routers.safetensors").write_bytes(whole[:-1] + b"?")
    with pytest.raises(ValueError, match="cannot be read .* is not what was written with"):
        dares.load_routers(tiny_model("llama"), tmp_path)
    (tmp_path / "routers.safetensors").write_bytes(whole)
    newer = {**json.loads(described), "format": 2}
    for text, reason in (
        (described[:40], "JSON|delimiter|Expect"),
        (json.dumps(newer), "format 2"),
    ):
        (tmp_path / "routers.json").write_text(text)
        with pytest.raises(ValueError, match=f"cannot be read .*({reason})"):
            dares.load_routers(tiny_model("llama"), tmp_path)
