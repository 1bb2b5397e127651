"""What `convert`, `unconvert` and `from_config` refuse, and what they say."""

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
from tests.models.families import tiny_config, tiny_model


def test_unknown_family():
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


def test_another_head():
    model = LlamaForSequenceClassification(tiny_config("llama"))
    with pytest.raises(ValueError, match="takes LlamaForCausalLM .* got LlamaForSequenceClass"):
        dares.convert(model, dares.preset("delta"))


def test_not_a_model():
    with pytest.raises(ValueError, match="needs a transformers language model, got Linear"):
        dares.convert(torch.nn.Linear(2, 2), dares.preset("delta"))


def test_twice():
    routed = dares.convert(tiny_model("llama"), dares.preset("delta"))
    with pytest.raises(ValueError, match="DaresLlamaForCausalLM is routed already"):
        dares.convert(routed, dares.preset("delta"))


def test_not_a_scheme():
    with pytest.raises(ValueError, match="depth must be a scheme config .* got 'delta'"):
        dares.convert(tiny_model("llama"), "delta")


def test_block_too_large():
    with pytest.raises(ValueError, match=r"block must be between 1 and 3 \(the model's layers\)"):
        dares.convert(tiny_model("llama"), dares.preset("delta_block", block=4))
    with pytest.raises(ValueError, match="block must be between 1 and 3"):
        dares.from_config(tiny_config("llama"), dares.preset("delta_block", block=4))


def test_a_changed_module():
    model = tiny_model("llama")
    model.model.layers[1].mlp.act_fn = torch.nn.Identity()
    with pytest.raises(ValueError, match="layers.1.mlp.act_fn is a Identity where the family has"):
        dares.convert(model, dares.preset("delta"))


def test_an_added_parameter():
    model = tiny_model("llama")
    model.model.layers[1].extra = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="unmodified model"):
        dares.convert(model, dares.preset("delta"))


def test_another_shape():
    model = tiny_model("llama")
    model.model.norm.weight = torch.nn.Parameter(torch.ones(31))
    with pytest.raises(ValueError, match=r"differ in 'model.norm.weight' \(31,\)"):
        dares.convert(model, dares.preset("delta"))


def test_meta_weights():
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config("llama"))
    with pytest.raises(ValueError, match="weights are on meta: load it onto one real device"):
        dares.convert(model, dares.preset("delta"))


def test_nan_weights():
    model = tiny_model("llama")
    torch.nn.init.constant_(model.model.norm.weight, float("nan"))
    with pytest.raises(ValueError, match="logits that are not finite"):
        dares.convert(model, dares.preset("delta"))


def test_two_dtypes():
    model = tiny_model("llama")
    model.model.layers[1].half()
    with pytest.raises(ValueError, match="the model itself does not run on the probe"):
        dares.convert(model, dares.preset("delta"))


def test_bad_configs():
    with pytest.raises(ValueError, match="config must be a transformers config, got str"):
        dares.from_config("qwen3", dares.preset("delta"))
    with pytest.raises(ValueError, match="depth must be a scheme config .* got None"):
        dares.from_config(tiny_config("llama"), None)


def test_a_hook_that_changes_the_base():
    model = tiny_model("llama")
    model.model.layers[0].register_forward_hook(lambda m, a, out: out * 2)
    with pytest.raises(ValueError, match="the logits move by .* a hook or a changed attribute"):
        dares.convert(model, dares.preset("delta"))


def test_compiled():
    with pytest.raises(ValueError, match="convert it before it is compiled"):
        dares.convert(torch.compile(tiny_model("llama")), dares.preset("delta"))


def test_bad_probes():
    model = tiny_model("llama")
    with pytest.raises(ValueError, match="probe must be a tensor of token ids, got list"):
        dares.convert(model, dares.preset("delta"), probe=[[1]])
    with pytest.raises(ValueError, match="probe holds token id -1"):
        dares.convert(model, dares.preset("delta"), probe=torch.tensor([[-1, 5]]))
    with pytest.raises(ValueError, match="probe holds token id 97, the vocabulary has 97"):
        dares.convert(model, dares.preset("delta"), probe=torch.tensor([[97]]))
    with pytest.raises(ValueError, match=r"probe must be token ids \[batch, tokens\]"):
        dares.convert(model, dares.preset("delta"), probe=torch.tensor([1]))


def test_cross_attention():
    config = GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=50, add_cross_attention=True)
    with pytest.raises(ValueError, match="add_cross_attention=True"):
        dares.convert(GPT2LMHeadModel(config), dares.preset("delta"))


def test_unconvert_of_a_plain_model():
    with pytest.raises(ValueError, match="needs a routed language model, got LlamaForCausalLM"):
        dares.unconvert(tiny_model("llama"))
