"""Configs fail at birth, in the user's words, and survive a round trip."""

import dataclasses
import json

import pytest

import dares
from dares.config import config_from_dict


@pytest.mark.parametrize("name", dares.PRESETS)
def test_round_trip(name):
    config = dares.preset(name)
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_presets_are_the_papers():
    fields = {
        name: tuple(getattr(dares.preset(name), f) for f in ("sources", "merge", "final"))
        for name, row in dares.PRESETS.items()
        if row.config.scheme == "routed"
    }
    assert fields == {
        "attnres": ("sublayer", "replace", "routed"),
        "attnres_block": ("block", "replace", "routed"),
        "delta": ("sublayer", "add", "stream"),
        "delta_block": ("block", "add", "stream"),
        "cumulative": ("cumulative", "replace", "stream"),
    }


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        dares.preset("delta").merge = "replace"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: dares.preset("delt"),
            "unknown preset 'delt'; did you mean 'delta'\\? choose from: standard",
        ),
        (
            lambda: dares.preset("delta", blok=4),
            "unknown DepthConfig field 'blok'; did you mean 'block'",
        ),
        (
            lambda: dares.preset("standard", block=4),
            "scheme 'standard' has no options, got 'block'",
        ),
        (
            lambda: dares.preset("delta", merge="sum"),
            "unknown merge 'sum'; choose from: replace, add",
        ),
        (
            lambda: dares.preset("delta", sources="blocks"),
            "unknown sources 'blocks'; did you mean 'block'",
        ),
        (
            lambda: dares.preset("delta", block=4),
            "block=4 needs sources='block', got sources='sublayer'",
        ),
        (lambda: dares.preset("delta", running=False), "running=False needs sources='block'"),
        (lambda: dares.preset("delta_block", block=0), "block must be a whole number .* got 0"),
        (
            lambda: dares.preset("delta_block", block=None),
            "block must be a whole number .* got None",
        ),
        (lambda: dares.preset("delta_block", block=2.5), "block must be a whole number .* got 2.5"),
        (lambda: dares.preset("delta", eps=0), "eps must be above zero, got 0"),
        (lambda: dares.preset("delta", eps="1"), "eps must be above zero, got '1'"),
        (lambda: dares.preset("delta", query_std=-1), "query_std must be zero or more, got -1"),
        (lambda: dares.preset("delta", null_source=1), "null_source must be true or false, got 1"),
        (lambda: dares.preset("delta", merge="none"), "would never read a source"),
        (lambda: config_from_dict({}), "no field 'scheme'"),
        (lambda: config_from_dict("delta"), "must be a table of fields, got 'delta'"),
        (
            lambda: config_from_dict({"scheme": "routde"}),
            "unknown scheme 'routde'; did you mean 'routed'",
        ),
        (
            lambda: config_from_dict({"scheme": "routed", "sources": "sublayer"}),
            "the depth config lacks 'merge', 'final', 'block'",
        ),
        (
            lambda: config_from_dict({**dares.preset("delta").to_dict(), "head": 2}),
            "unknown DepthConfig field 'head'",
        ),
    ],
)
def test_wrong_values_are_named(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)
