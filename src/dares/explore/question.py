"""What the page may ask: checked before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dares.names import unknown_name

MOST_BYTES = 1 << 16  # a text of the longest kind, its switches, and room to spare


class Switch(NamedTuple):
    """A source that is not to be read, at one site or (None) wherever it can be."""

    source: str
    site: int | None


Switches = frozenset[Switch]
NOTHING_OFF: Switches = frozenset()


@dataclass(frozen=True)
class Question:
    """One request of the page: a text for one model, with some sources switched off.

    measure  by which tokens are coloured, where all of them are asked for
    token    the one that is asked for, counted from 0
    """

    text: str
    model: int = 0
    off: Switches = NOTHING_OFF
    measure: str = "loss"
    token: int = 0


_KINDS = {"text": str, "model": int, "off": list, "measure": str, "token": int}
_WORDS = {str: "a text", int: "a whole number", list: "a list"}


def parse_question(body: bytes) -> Question:
    """The question in a request's JSON."""
    try:
        fields = json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the request is not JSON ({error}): send an object") from error
    if not isinstance(fields, dict):
        raise ValueError(f"the request must be a JSON object, got {_kind(fields)}")
    _check(fields, _KINDS)
    if "text" not in fields:
        raise ValueError("the request has no text: send one")
    _check_text(fields["text"])
    off = frozenset(_switch(each) for each in fields.pop("off", []))
    return Question(off=off, **fields)


def _switch(fields: Any) -> Switch:
    if not isinstance(fields, dict) or "source" not in fields:
        raise ValueError(f"a switch must name its source, got {fields!r}")
    site = fields.get("site")
    known = {"source": str} if site is None else {"source": str, "site": int}
    _check({name: value for name, value in fields.items() if value is not None}, known)
    return Switch(fields["source"], site)


def _check(fields: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    for name, value in fields.items():
        if name not in kinds:
            raise ValueError(unknown_name("field", name, kinds))
        # a bool is an int to Python
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ValueError(f"{name} must be {_WORDS[kinds[name]]}, got {_kind(value)}")


def _kind(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."


def _check_text(text: str) -> None:
    if not text.strip():
        raise ValueError("the text is empty: type or paste some")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is half of one (a lone surrogate): paste it again"
        ) from error
