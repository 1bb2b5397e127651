"""Recipes fail at birth, in the user's words, survive a round trip, and build their model."""

import dataclasses
import json

import pytest
import torch

import dares
from dares.train.recipe import (
    BatchSettings,
    DataSettings,
    OptimSettings,
    Recipe,
    RunSettings,
    build_config,
    build_model,
)
from dares.train.recipes import RECIPES, recipe

TINY = recipe("tiny")


def shape(**changes):
    return dataclasses.replace(TINY.model, **changes)


@pytest.mark.parametrize("name", RECIPES)
def test_round_trip(name):
    made = recipe(name)
    assert made.name == name
    assert Recipe.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_kinds_are_brought_into_line():
    optim = OptimSettings(lr=1, betas=[0, 0.9], warmup=0)
    assert optim.betas == (0.0, 0.9)
    assert type(optim.lr) is float
    with pytest.raises(dataclasses.FrozenInstanceError):
        optim.lr = 2.0


def test_defaults_need_not_be_written():
    data = TINY.to_dict()
    del data["optim"]["betas"], data["run"]["seed"]
    assert Recipe.from_dict(data) == TINY


def test_tokens_per_step():
    batch = BatchSettings(rows=6, micro_rows=3)
    data = DataSettings(row_tokens=100)
    assert dataclasses.replace(TINY, batch=batch, data=data).tokens_per_step == 600


def test_with_scheme_keeps_the_recipes_block():
    assert recipe("tiny").with_scheme("attnres_block").depth == dares.preset(
        "attnres_block", block=2
    )
    standard = recipe("tiny-standard")
    assert standard.with_scheme("delta_block").depth.block == 4  # the preset's
    shallow = dataclasses.replace(standard, model=shape(layers=3))
    assert shallow.with_scheme("delta_block").depth.block == 3


def edited(section, **changes):
    data = TINY.to_dict()
    data[section].update(changes)
    return data


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: shape(width=0), "model.width must be at least 1, got 0"),
        (lambda: shape(width=64.0), "model.width must be a whole number, got 64.0"),
        (lambda: shape(width=True), "model.width must be a whole number, got True"),
        (lambda: shape(tied=1), "model.tied must be true or false, got 1"),
        (lambda: shape(embedding_std=0.0), "model.embedding_std must be above zero, got 0.0"),
        (
            lambda: shape(kv_heads=3),
            "model.heads must be a multiple of model.kv_heads, got 4 and 3",
        ),
        (lambda: shape(head_dim=15), "model.head_dim must be even, .* got 15"),
        (lambda: shape(family="qwen4"), "unknown model.family 'qwen4'; did you mean 'qwen2|3'"),
        (lambda: DataSettings(row_tokens=1), "data.row_tokens must be at least 2, got 1"),
        (
            lambda: DataSettings(row_tokens=8, inputs="a.txt"),
            "data.inputs must be any number of values .* each text, got 'a.txt'",
        ),
        (
            lambda: DataSettings(row_tokens=8, validation=1.0),
            "data.validation must be a share between 0 and 1, got 1.0",
        ),
        (lambda: DataSettings(row_tokens=8, limit=0), "data.limit must be at least 1, got 0"),
        (lambda: OptimSettings(lr=0, warmup=1), "optim.lr must be above zero, got 0"),
        (
            lambda: OptimSettings(lr=float("nan"), warmup=1),
            "optim.lr must be a number, got nan",
        ),
        (
            lambda: OptimSettings(lr=1, warmup=1, router_lr=-1),
            "optim.router_lr must be above zero, got -1",
        ),
        (
            lambda: OptimSettings(lr=1, warmup=1, betas=(0.9,)),
            "optim.betas must be 2 values with commas between them, each a number, got \\(0.9,\\)",
        ),
        (
            lambda: OptimSettings(lr=1, warmup=1, betas=(0.9, 1)),
            "optim.betas must be in \\[0, 1\\), got",
        ),
        (
            lambda: OptimSettings(lr=1, warmup=1, final_lr=2),
            "optim.final_lr must be a share of lr between 0 and 1, got 2",
        ),
        (
            lambda: BatchSettings(rows=6, micro_rows=4),
            "batch.rows must be a multiple of batch.micro_rows, got 6 and 4",
        ),
        (lambda: RunSettings(steps=0), "run.steps must be at least 1, got 0"),
        (
            lambda: RunSettings(steps=1, precision="fp16"),
            "unknown run.precision 'fp16'; did you mean 'bf16|fp32'",
        ),
        (lambda: RunSettings(steps=1, backend="groupd"), "unknown backend 'groupd'; did you mean"),
        (lambda: dataclasses.replace(TINY, name=""), "name must be text, got ''"),
        (lambda: dataclasses.replace(TINY, depth="delta"), "depth must be a SchemeConfig, got"),
        (
            lambda: dataclasses.replace(TINY, model=shape(layers=1)),
            "block must be between 1 and 1 \\(the model's layers\\), got 2",
        ),
        (
            lambda: dataclasses.replace(TINY, model=shape(vocabulary=99)),
            "data.vocabulary must be no more than model.vocabulary, got 4096 and 99",
        ),
        (lambda: Recipe.from_dict("tiny"), "the recipe must be a table of settings, got 'tiny'"),
        (lambda: Recipe.from_dict({"name": "x"}), "the recipe lacks 'about', 'model', 'depth'"),
        (
            lambda: Recipe.from_dict({**TINY.to_dict(), "optm": {}}),
            "unknown setting of the recipe 'optm'; did you mean 'optim'",
        ),
        (
            lambda: Recipe.from_dict(edited("optim", lrr=1)),
            "unknown setting of optim 'lrr'; did you mean 'lr'",
        ),
        (
            lambda: Recipe.from_dict(edited("run", steps="9")),
            "run.steps must be a whole number, got '9'",
        ),
        (
            lambda: Recipe.from_dict(edited("depth", merge="sum")),
            "unknown merge 'sum'",
        ),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_the_model_is_the_one_described():
    made = dataclasses.replace(TINY, run=RunSettings(steps=1, backend="naive"))
    config = build_config(made)
    assert (config.hidden_size, config.num_hidden_layers, config.head_dim) == (64, 4, 16)
    assert (config.intermediate_size, config.num_key_value_heads) == (192, 2)
    assert config.max_position_embeddings == 128
    model = build_model(made)
    assert model.base_model.depth.backend == "naive"
    assert model.base_model.depth.config == made.depth
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.randint(made.model.vocabulary, (2, 8))
    assert model(input_ids=ids).logits.shape == (2, 8, 4096)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("gpt2", {"kv_heads": 4, "mlp": 256}),
        ("gpt_neox", {"kv_heads": 4, "tied": False}),
        ("gemma3_text", {}),
    ],
)
def test_other_families(family, changes):
    made = dataclasses.replace(TINY, model=shape(family=family, **changes))
    model = build_model(made)
    assert model.config.base_model_type == family
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (64, 4)
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 4096)


@pytest.mark.parametrize(
    ("family", "changes"),
    [("qwen3", {}), ("qwen3", {"tied": False}), ("gpt2", {"kv_heads": 4, "mlp": 256})],
)
def test_the_embedding_is_as_large_as_asked(family, changes):
    """And nothing else changes: not the head of an untied model either."""
    models = []
    for std in (None, 0.25):
        torch.manual_seed(0)
        made = shape(family=family, embedding_std=std, **changes)
        models.append(build_model(dataclasses.replace(TINY, model=made)))
    plain, scaled = (dict(model.named_parameters()) for model in models)
    (name,) = (n for n, p in scaled.items() if p is models[1].get_input_embeddings().weight)
    assert scaled[name].std().item() == pytest.approx(0.25, rel=0.01)
    torch.testing.assert_close(scaled.pop(name), plain.pop(name) * 12.5)
    for other, weight in scaled.items():
        assert torch.equal(weight, plain[other]), other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "gpt2"}, "'gpt2' has no num_key_value_heads of its own: it would be 4, got 2"),
        ({"family": "gpt2", "kv_heads": 4}, "no intermediate_size of its own: it would be 256"),
        (
            {"family": "gpt_neox", "kv_heads": 4, "head_dim": 32},
            "no head_dim of its own: it would be 16, got 32",
        ),
    ],
)
def test_what_a_family_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build_config(dataclasses.replace(TINY, model=shape(**changes)))
