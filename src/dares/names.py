"""Answering a wrong name: say what was wrong, the nearest right one, and all the choices."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(kind: str, name: object, choices: Iterable[str]) -> str:
    """The sentence for a name that is not among the choices.

    >>> unknown_name("preset", "delt", ["delta", "standard"])
    "unknown preset 'delt'; did you mean 'delta'? choose from: delta, standard"
    """
    known = list(choices)
    near = get_close_matches(str(name), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}; {hint}choose from: {', '.join(known)}"
