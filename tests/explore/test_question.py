"""What the page sends is checked before anything is computed."""

import json

import pytest

from dares.explore.question import Question, Switch, parse_question


def ask(**fields):
    return parse_question(json.dumps(fields).encode())


def test_a_question():
    assert ask(text="a") == Question("a")
    off = [{"source": "embedding", "site": None}, {"source": "delta 0", "site": 3}]
    assert ask(text="a", model=1, token=2, measure="largest", off=off) == Question(
        "a",
        model=1,
        token=2,
        measure="largest",
        off=frozenset([Switch("embedding", None), Switch("delta 0", 3)]),
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the request has no text"),
        ({"text": ""}, "the text is empty: type or paste some"),
        ({"text": " \n"}, "the text is empty"),
        ({"text": 7}, "text must be a text, got 7"),
        ({"text": "a\ud800"}, "character 1 of the text is half of one"),
        ({"text": "a", "token": "2"}, "token must be a whole number, got '2'"),
        ({"text": "a", "model": True}, "model must be a whole number, got True"),
        ({"text": "a", "off": {}}, "off must be a list"),
        ({"text": "a", "off": ["embedding"]}, "a switch must name its source, got 'embedding'"),
        ({"text": "a", "off": [{"site": 1}]}, "a switch must name its source"),
        ({"text": "a", "off": [{"source": 0}]}, "source must be a text, got 0"),
        (
            {"text": "a", "off": [{"source": "embedding", "site": 1.5}]},
            "site must be a whole number, got 1.5",
        ),
        ({"text": "a", "tokens": 2}, "unknown field 'tokens'; did you mean 'token'"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        ask(**fields)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_no_json(body):
    with pytest.raises(ValueError, match="the request is not JSON"):
        parse_question(body)


def test_no_object():
    with pytest.raises(ValueError, match=r"must be a JSON object, got \[1, 2\]"):
        parse_question(b"[1, 2]")
