"""Settings changed from text: typed, validated, all at once; a misspelt one gets the nearest."""

import pytest

import dares
from dares.train.overrides import apply_overrides, setting_kinds
from dares.train.recipes import recipe

TINY = recipe("tiny")


@pytest.mark.parametrize(
    ("text", "section", "field", "value"),
    [
        ("optim.lr=3e-4", "optim", "lr", 3e-4),
        ("optim.lr=1", "optim", "lr", 1.0),
        ("optim.router_lr=none", "optim", "router_lr", None),
        ("optim.router_lr=5e-3", "optim", "router_lr", 5e-3),
        ("optim.betas=0.8,0.99", "optim", "betas", (0.8, 0.99)),
        ("data.inputs=a.txt,b.txt", "data", "inputs", ("a.txt", "b.txt")),
        ("data.inputs=", "data", "inputs", ()),
        ("data.tokenizer=None", "data", "tokenizer", None),
        ("data.tokenizer=a=b", "data", "tokenizer", "a=b"),
        ("run.compile=true", "run", "compile", True),
        (" run.compile = False ", "run", "compile", False),
        ("run.precision=bf16", "run", "precision", "bf16"),
        ("depth.block=4", "depth", "block", 4),
        ("depth.null_source=true", "depth", "null_source", True),
    ],
)
def test_typed(text, section, field, value):
    changed = getattr(getattr(apply_overrides(TINY, [text]), section), field)
    assert changed == value
    assert type(changed) is type(value)


def test_nothing_else_changes():
    before, after = TINY.to_dict(), apply_overrides(TINY, ["optim.lr=3e-4"]).to_dict()
    before["optim"]["lr"] = 3e-4
    assert after == before
    assert apply_overrides(TINY, []) == TINY


def test_a_preset_and_its_fields_in_any_order():
    asked = ["depth.block=4", "depth=attnres_block", "name=mine"]
    for overrides in (asked, asked[::-1]):
        changed = apply_overrides(TINY, overrides)
        assert changed.depth == dares.preset("attnres_block", block=4)
        assert changed.name == "mine"
    assert apply_overrides(TINY, ["depth=standard"]).depth == dares.preset("standard")


def test_a_preset_by_setting_is_the_recipe_of_that_name():
    changed = apply_overrides(recipe("220m"), ["depth=attnres_block", "name=220m-attnres_block"])
    assert changed == recipe("220m-attnres_block")


def test_all_at_once():
    """Each alone would be refused: heads need kv_heads, rows need micro_rows, sources a block."""
    together = "model.heads=9 model.kv_heads=3 batch.rows=9 batch.micro_rows=3"
    sources = "depth.sources=sublayer depth.block=none"
    changed = apply_overrides(TINY, f"{together} {sources}".split())
    assert (changed.model.heads, changed.batch.rows) == (9, 9)
    assert changed.depth.sources == "sublayer"


def test_every_setting_can_be_set():
    """Every path that is offered takes the value that it has, written as text."""
    for path in setting_kinds(TINY):
        value = TINY
        for name in path.split("."):
            value = getattr(value, name)
        if path == "depth":
            value = "delta_block"
        elif isinstance(value, tuple):
            value = ",".join(map(str, value))
        assert apply_overrides(TINY, [f"{path}={value}"]) == TINY, path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim.lrr=1", "unknown setting 'optim.lrr'; did you mean 'optim.lr'\\? choose .*warmup"),
        ("optm.lr=1", "unknown setting 'optm.lr'; did you mean 'optim.lr'"),
        ("lr=1", "unknown setting 'lr'; choose from: .*optim.lr"),
        ("depth.blok=1", "unknown setting 'depth.blok'; did you mean 'depth.block'"),
        ("depth=delt", "unknown preset 'delt'; did you mean 'delta'"),
        ("depth.merge=ad", "unknown merge 'ad'; did you mean 'add'"),
        ("depth.block=9", "block must be between 1 and 4 \\(the model's layers\\), got 9"),
        ("run.precision=bf61", "unknown run.precision 'bf61'; did you mean 'bf16'"),
        ("optim.lr=fast", "optim.lr must be a number, got 'fast'"),
        ("optim.lr=none", "optim.lr must be a number, got 'none'"),
        ("optim.lr=inf", "optim.lr must be a number, got 'inf'"),
        ("optim.router_lr=x", "optim.router_lr must be a number or none, got 'x'"),
        ("run.steps=1e3", "run.steps must be a whole number, got '1e3'"),
        ("run.compile=yes", "run.compile must be true or false, got 'yes'"),
        ("optim.betas=0.9", "optim.betas must be 2 values .* got '0.9'"),
        ("optim.lr=-1", "optim.lr must be above zero, got -1.0"),
        ("run.steps", "a change of a setting is written path=value, got 'run.steps'"),
    ],
)
def test_mistakes_are_one_sentence(text, message):
    with pytest.raises(ValueError, match=message) as error:
        apply_overrides(TINY, [text])
    assert "\n" not in str(error.value)
