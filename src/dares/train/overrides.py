"""Settings changed from text: "optim.lr=3e-4", "depth=delta_block", "run.compile=true"."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from dares.names import unknown_name
from dares.train.recipe import SECTIONS, Recipe
from dares.train.settings import kinds, parse
from dares.train.start import StartSettings

TEXTS = ("name", "about")


def apply_overrides(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """The recipe with some settings changed, all at once: their order does not matter.

    Each is "section.setting=value"; "depth=NAME" takes a preset, whose fields "depth.field=value"
    then change.
    """
    texts = dict(_split(override) for override in overrides)
    if "depth" in texts:
        recipe = recipe.with_scheme(texts.pop("depth"))
    known = setting_kinds(recipe)
    changes: dict[str, dict[str, Any]] = {}
    for path, text in texts.items():
        if path not in known:
            raise ValueError(unknown_name("setting", path, _choices(path, known)))
        section, _, name = path.rpartition(".")
        changes.setdefault(section, {})[name] = parse(path, known[path], text)
    whole = changes.pop("", {})
    for section, values in changes.items():
        whole[section] = dataclasses.replace(getattr(recipe, section), **values)
    return dataclasses.replace(recipe, **whole)


def setting_kinds(recipe: Recipe) -> dict[str, Any]:
    """Every path that can be set in this recipe, and the kind of its value."""
    found: dict[str, Any] = dict.fromkeys((*TEXTS, "depth"), str)
    sections: dict[str, type] = {**SECTIONS, "depth": type(recipe.depth)}
    if recipe.start is not None:
        del sections["model"]  # the checkpoint's own
        sections["start"] = StartSettings
    for section, kind in sections.items():
        found |= {f"{section}.{name}": each for name, each in kinds(kind).items()}
    return found


def _split(override: str) -> tuple[str, str]:
    path, equals, text = override.partition("=")
    if not equals:
        raise ValueError(f"a change of a setting is written path=value, got {override!r}")
    return path.strip(), text.strip()


def _choices(path: str, known: Iterable[str]) -> list[str]:
    """The settings to name in an answer: those of the section, if there is one of that name."""
    section = path.partition(".")[0] + "."
    return [name for name in known if name.startswith(section)] or list(known)
