"""Groups of settings: frozen, every field of its annotated kind, read from JSON or from text."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from dares.names import unknown_name

SettingsT = TypeVar("SettingsT", bound="Settings")

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of a group: checks the kind of every field, then what `check` asks."""

    section: ClassVar[str]  # its name in a recipe: errors speak of section.field

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            value = accept(self.path(name), kind, getattr(self, name))
            object.__setattr__(self, name, value)  # a list becomes a tuple, 1 becomes 1.0
        self.check()

    def check(self) -> None:
        """Raise ValueError where the values, each of its kind, make no sense."""

    def path(self, name: str) -> str:
        """What a user calls a field."""
        return f"{self.section}.{name}"

    def at_least(self, least: float, *names: str) -> None:
        """Raise where one of those fields is below; None is left alone."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{self.path(name)} must be at least {least:g}, got {value!r}")

    def above_zero(self, *names: str) -> None:
        """Raise where one of those fields is not positive; None is left alone."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{self.path(name)} must be above zero, got {value!r}")

    def to_dict(self) -> dict[str, Any]:
        """Every field, as plain JSON values."""
        fields = dataclasses.asdict(self)
        return {n: list(v) if isinstance(v, tuple) else v for n, v in fields.items()}

    @classmethod
    def from_dict(cls: type[SettingsT], data: Any) -> SettingsT:
        """Read what `to_dict` wrote; fields that have a default may be left out."""
        return cls(**known_fields(cls, data, cls.section))


def known_fields(cls: type, data: Any, section: str) -> dict[str, Any]:
    """The table's entries, if it is a table of that dataclass's fields and lacks none it needs."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{section} must be a table of settings, got {data!r}")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in data:
        if name not in fields:
            raise ValueError(unknown_name(f"setting of {section}", name, fields))
    missing = [n for n, f in fields.items() if n not in data and f.default is dataclasses.MISSING]
    if missing:
        raise ValueError(f"{section} lacks {', '.join(map(repr, missing))}: add them")
    return dict(data)


def kinds(cls: type) -> dict[str, Any]:
    """Field -> annotation of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def accept(path: str, kind: Any, value: Any) -> Any:
    """The value in its kind: a Python or JSON value, never text that would have to be read."""
    inner = _unless_none(kind)
    if value is None and inner is not kind:
        return None
    items = _item_kinds(inner, value)
    if items is not None and len(items) == len(value):
        return tuple(accept(path, item, v) for item, v in zip(items, value, strict=True))
    if inner is float and _is_number(value) and math.isfinite(value):
        return float(value)
    if inner in (int, bool, str) and type(value) is inner:
        return value
    raise ValueError(f"{path} must be {_words(kind)}, got {value!r}")


def parse(path: str, kind: Any, text: str) -> Any:
    """The value that a user wrote as text."""
    inner = _unless_none(kind)
    if inner is not kind and text.lower() == "none":
        return None
    try:
        return accept(path, kind, _read(inner, text))
    except ValueError as error:
        raise ValueError(f"{path} must be {_words(kind)}, got {text!r}") from error


def one_of(path: str, value: str, choices: Iterable[str]) -> None:
    """Raise where value is not among the choices."""
    known = list(choices)
    if value not in known:
        raise ValueError(unknown_name(path, value, known))


def _read(kind: Any, text: str) -> Any:
    if kind is bool:
        return _TRUTH.get(text.lower(), text)
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return [_read(item, part) for part in text.split(",")] if text else []
    return kind(text)


def _unless_none(kind: Any) -> Any:
    """int of int | None; any other kind as it is."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    (inner,) = (part for part in typing.get_args(kind) if part is not type(None))
    return inner


def _item_kinds(kind: Any, value: Any) -> list[Any] | None:
    """The kinds of a tuple's items, where kind is a tuple and value could be one."""
    if typing.get_origin(kind) is not tuple or not isinstance(value, list | tuple):
        return None
    first, *rest = typing.get_args(kind)
    return [first] * len(value) if rest == [...] else [first, *rest]


def _words(kind: Any) -> str:
    inner = _unless_none(kind)
    if typing.get_origin(inner) is tuple:
        first, *rest = typing.get_args(inner)
        many = "any number of" if rest == [...] else str(1 + len(rest))
        words = f"{many} values with commas between them, each {_WORDS[first]}"
    else:
        words = _WORDS[inner]
    return words if inner is kind else f"{words} or none"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
