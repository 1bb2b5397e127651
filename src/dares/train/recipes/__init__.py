"""The recipes there are: a base a size, and each of them under every preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dares.names import unknown_name
from dares.presets import PRESETS
from dares.train.recipe import Recipe
from dares.train.recipes.cpu import mini, small, tiny
from dares.train.recipes.paper import (
    qwen3_0p6b,
    qwen3_8b,
    qwen3_220m,
    qwen3_533m,
    qwen3_1044m,
)

PAPER_SCHEMES = ("standard", "attnres_block", "attnres", "delta_block", "delta")  # of 2605.18855
SCHEMES = (*PAPER_SCHEMES, *(name for name in PRESETS if name not in PAPER_SCHEMES))

BASES: dict[str, Callable[[], Recipe]] = {
    "tiny": tiny,
    "mini": mini,
    "small": small,
    "220m": qwen3_220m,
    "533m": qwen3_533m,
    "1044m": qwen3_1044m,
    "0.6b": qwen3_0p6b,
    "8b": qwen3_8b,
}


def _under(base: Callable[[], Recipe], scheme: str) -> Callable[[], Recipe]:
    """The base recipe with another scheme, and nothing else changed."""

    def variant() -> Recipe:
        recipe = base().with_scheme(scheme)
        return dataclasses.replace(recipe, name=f"{recipe.name}-{scheme}")

    return variant


RECIPES: dict[str, Callable[[], Recipe]] = {
    **BASES,
    **{f"{name}-{s}": _under(base, s) for name, base in BASES.items() for s in SCHEMES},
}


def recipe(name: str) -> Recipe:
    """A recipe by its name: a size, or a size and a scheme such as "220m-delta"."""
    if name in RECIPES:
        return RECIPES[name]()
    size, _, scheme = name.rpartition("-")
    if size in BASES:
        raise ValueError(unknown_name(f"scheme of recipe {size!r}:", scheme, SCHEMES))
    raise ValueError(unknown_name("recipe", name, [*BASES, *(f"SIZE-{s}" for s in SCHEMES)]))
