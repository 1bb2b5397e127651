"""What a study is: variants of a recipe, seeds, learning rates to try; validated at birth."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dares.names import unknown_name
from dares.train.recipe import Recipe

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# of runs that try rates: none of a study's own, so that no seed is favoured, and the same in every
# study, so that one can take over what another has tried
TUNING_SEED = 1_000_000
# what all variants must have in common for their losses to be comparable, seed by seed
SHARED = ("data", "batch.rows", "run.steps", "run.eval_rows", "run.precision")


@dataclass(frozen=True)
class Variant:
    """One row of the table: a whole recipe, and the variant that it is compared with."""

    name: str
    recipe: Recipe
    baseline: str = "standard"


@dataclass(frozen=True)
class Study:
    """Every variant is trained once for each seed.

    rates         tried for each variant first, if there are any
    tuning_share  of a run's steps, which each rate is tried for
    """

    name: str
    about: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = ()
    tuning_share: float = 0.5

    def __post_init__(self) -> None:
        names = [variant.name for variant in self.variants]
        if not names:
            raise ValueError(f"study {self.name!r} has no variants: give it some")
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(
                    f"study {self.name!r} has {count} variants of the name {name!r}: rename them"
                )
            if not FILE_NAME.fullmatch(name):
                raise ValueError(
                    f"variant {name!r} cannot name a folder: use letters, digits, '.', '_' and '-'"
                )
        for variant in self.variants:
            if variant.baseline not in names:
                raise ValueError(
                    f"variant {variant.name!r} is compared with "
                    f"{variant.baseline!r}, which is not in the study: add it, or choose among "
                    f"{', '.join(names)}"
                )
        self._check_seeds()
        self._check_rates()
        self._check_shared()

    def _check_seeds(self) -> None:
        if not self.seeds:
            raise ValueError("a study needs at least one seed, got none")
        if len(set(self.seeds)) < len(self.seeds) or not all(
            0 <= seed < TUNING_SEED for seed in self.seeds
        ):
            raise ValueError(
                f"seeds must differ and be between 0 and {TUNING_SEED - 1:,}, got {self.seeds}"
            )

    def _check_rates(self) -> None:
        names = [f"{rate:g}" for rate in self.rates]  # as folders are called
        usable = all(math.isfinite(rate) and rate > 0 for rate in self.rates)
        if names and not (usable and len(set(names)) == len(names) >= 3):
            raise ValueError(
                "tuning needs at least three learning rates, different, finite and above zero, got "
                f"{', '.join(names)}"
            )
        if not 0 < self.tuning_share <= 1:
            raise ValueError(
                f"rates are tried for a share of the steps above 0, at most 1, got "
                f"{self.tuning_share:g}"
            )

    def _check_shared(self) -> None:
        first = self.variants[0]
        for other in self.variants[1:]:
            for path in SHARED:
                one, two = (_at(variant.recipe, path) for variant in (first, other))
                if one != two:
                    raise ValueError(
                        f"variants {first.name!r} and {other.name!r} differ in {path} "
                        f"({one} and {two}): give all the same text and the same budget"
                    )

    @property
    def tokens(self) -> int:
        """What each run is trained on."""
        recipe = self.variants[0].recipe
        return recipe.run.steps * recipe.tokens_per_step

    def variant(self, name: str) -> Variant:
        """The variant of that name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise ValueError(unknown_name("variant", name, [each.name for each in self.variants]))

    def with_pinned_text(self, begun: Study | None) -> Study:
        """Datasets by their commits: those of the study that goes on, or the newest."""
        before = begun.variants[0].recipe if begun is not None else None
        data = self.variants[0].recipe.with_pinned_text(before).data  # all variants have the same
        return replace(
            self,
            variants=tuple(replace(v, recipe=replace(v.recipe, data=data)) for v in self.variants),
        )

    def only(self, names: Sequence[str]) -> Study:
        """The same with some of its variants."""
        chosen = {self.variant(name).name for name in names}
        return replace(self, variants=tuple(v for v in self.variants if v.name in chosen))

    def to_dict(self) -> dict[str, Any]:
        """All of it, as plain JSON values."""
        return {
            "name": self.name,
            "about": self.about,
            "seeds": list(self.seeds),
            "rates": list(self.rates),
            "tuning_share": self.tuning_share,
            "variants": [
                {"name": v.name, "baseline": v.baseline, "recipe": v.recipe.to_dict()}
                for v in self.variants
            ],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Study:
        """Read what `to_dict` wrote."""
        variants = (
            Variant(each["name"], Recipe.from_dict(each["recipe"]), each["baseline"])
            for each in data["variants"]
        )
        return cls(
            name=data["name"],
            about=data["about"],
            variants=tuple(variants),
            seeds=tuple(data["seeds"]),
            rates=tuple(data["rates"]),
            tuning_share=data["tuning_share"],
        )


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """Text and tokenizer by their whole paths: workers may start in other folders."""
    settings = recipe.data
    data = replace(
        settings,
        inputs=tuple(map(_absolute, settings.inputs)),
        validation_inputs=tuple(map(_absolute, settings.validation_inputs)),
        tokenizer=None if settings.tokenizer is None else _absolute(settings.tokenizer),
    )
    return replace(recipe, data=data)


def _absolute(name: str) -> str:
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name  # else a name on the Hub


def _at(recipe: Recipe, path: str) -> Any:
    found: Any = recipe.to_dict()
    for key in path.split("."):
        found = found[key]
    return found
