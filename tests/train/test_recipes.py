"""The recipes there are: built without memory, as large as published, shown by `dares recipes`."""

import json

import pytest
import torch
from typer.testing import CliRunner

import dares
from dares.commands.recipes import app
from dares.train.plan import count_parameters
from dares.train.recipe import build_model
from dares.train.recipes import BASES, RECIPES, SCHEMES, recipe

runner = CliRunner()

PUBLISHED = {"220m": 220, "533m": 533, "1044m": 1044, "0.6b": 596, "8b": 7568}  # millions


@pytest.mark.parametrize("size", BASES)
def test_every_recipe_builds(size):
    counts = {}
    for name in [size, *(f"{size}-{scheme}" for scheme in SCHEMES)]:
        made = recipe(name)
        with torch.device("meta"):
            model = build_model(made)
        assert all(p.is_meta for p in model.parameters())
        counts[name] = sum(p.numel() for p in model.parameters())
        assert model.base_model.depth.config == made.depth
    shape, base = made.model, counts[f"{size}-standard"]
    width, layers = shape.width, shape.layers
    attention = 2 * width * (shape.heads + shape.kv_heads) * shape.head_dim + 2 * shape.head_dim
    layer = attention + 3 * width * shape.mlp + 2 * width
    assert base == shape.vocabulary * width + layers * layer + width
    if size in PUBLISHED:
        assert base / 1e6 == pytest.approx(PUBLISHED[size], abs=0.6)
    routers = {scheme: counts[f"{size}-{scheme}"] - base for scheme in SCHEMES}
    attnres, delta = 4 * width * layers, 4 * width * layers - 2 * width
    streams, sites = 4, 2 * layers
    assert routers == {
        "standard": 0,
        "attnres_block": attnres,
        "attnres": attnres,
        "delta_block": delta,
        "delta": delta,
        "cumulative": delta,
        "ddl": sites * (2 * width + 1),
        "hyper": sites * ((streams + width) * (streams + 2) + 2),
        "mhc": sites * ((streams * width + 1) * streams * (streams + 2) + 3),
        "dense": sum(range(2, layers + 2)),
    }
    assert counts[size] == counts[f"{size}-delta_block"]


def test_8b_is_the_papers():
    counted = count_parameters(recipe("8b-delta"))
    assert f"{counted.total / 1e9:.2f}" == "7.57"
    assert counted.routers == 589_824 - 2 * 4096  # site 0 has nothing to choose
    assert counted.embedding == 151_936 * 4096


def test_published_settings():
    for size in ("220m", "533m", "1044m", "0.6b", "8b"):
        made = recipe(size)
        optim = made.optim
        assert (optim.betas, optim.weight_decay, optim.clip) == ((0.9, 0.95), 0.1, 1.0)
        assert (optim.final_lr, optim.router_lr) == (0.1, None)
        expected = (3e-4, 500) if size == "8b" else (6e-4, 1000)
        assert (optim.lr, optim.warmup) == expected
        assert (made.run.steps, made.data.row_tokens, made.tokens_per_step) == (
            10_000,
            2048,
            131_072,
        )
        assert (made.run.precision, made.model.vocabulary) == ("bf16", 151_936)
    assert recipe("220m").depth == dares.preset("delta_block", block=2)
    assert recipe("8b").run.gradient_checkpointing


def test_variants_differ_in_the_scheme_alone():
    for size in BASES:
        plain = recipe(size).to_dict()
        for scheme in SCHEMES:
            variant = recipe(f"{size}-{scheme}").to_dict()
            assert variant.pop("name") == f"{size}-{scheme}"
            assert {**plain, **variant, "depth": 0} == {**plain, "depth": 0}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("220", "unknown recipe '220'; did you mean '220m'"),
        ("mni-delta", "unknown recipe 'mni-delta'"),
        ("0.6b-detla", "unknown scheme of recipe '0.6b': 'detla'; did you mean 'delta'"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(ValueError, match=message):
        recipe(name)


def test_list():
    result = runner.invoke(app, [])
    assert result.exit_code == 0, result.output
    for name in (*BASES, *SCHEMES):
        assert name in result.output


def test_show():
    result = runner.invoke(app, ["show", "mini-delta", "--set", "optim.lr=0.5", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.output)
    expected = RECIPES["mini-delta"]().to_dict()
    expected["optim"]["lr"] = 0.5
    assert shown == expected

    told = " ".join(runner.invoke(app, ["show", "220m"]).output.replace("│", " ").split())
    assert "optim.router_lr none optim.betas 0.9,0.95" in told
    assert "data.inputs HuggingFaceFW/fineweb-edu" in told
    assert "run.compile false" in told

    mistake = runner.invoke(app, ["show", "mini", "--set", "optim.lrr=1"])
    assert "did you mean 'optim.lr'" in str(mistake.exception)
