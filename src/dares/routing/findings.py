"""What the numbers say of a model, in plain words, by rules that anyone can check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dares.routing.metrics import rank_correlation

# The rules. The page shows them beside the words.
SHARP, UNIFORM = 0.5, 0.1  # how far the largest weight is on its way from 1/n to 1
USED = 0.01  # nats a token, about 1 % of perplexity
REDUNDANT = 0.7  # mean cosine of neighbouring sources
AGREE = 0.5  # rank correlation of mass and effect

RULES = {
    "sharp": "the largest weight, averaged over tokens and sites, is on its way from what uniform "
    f"weights give (0) to one source alone (1) at {SHARP:g} or beyond",
    "nearly uniform": f"it is not at {UNIFORM:g} yet",
    "soft": "it is between the two",
    "used": f"without the routed term at every site the loss rises by more than {USED:g} nats a "
    "token (about 1 % of perplexity), and so says the whole 95 % interval",
    "hardly used": f"the whole interval lies between -{USED:g} and {USED:g}",
    "harmful": f"the whole interval lies below -{USED:g}: the loss falls without it",
    "unclear": "the interval reaches across such a border: more text would tell",
    "redundant": f"neighbouring sources have a mean cosine of at least {REDUNDANT:g}",
    "mass tells": f"the rank correlation of mean weight and effect is at least {AGREE:g}",
}


@dataclass(frozen=True)
class Finding:
    """A sentence or two under a heading, and the numbers that are in it."""

    title: str
    text: str
    numbers: dict[str, float]


def findings(model: Mapping[str, Any]) -> list[Finding]:
    """What is to be said of a model, from its entry in routing.json."""
    found = []
    if model["sites"]:
        found.append(_headline(model))
        if model["probes"]:
            found += [_tokens(model["probes"]), _mass(model["probes"])]
    else:
        found.append(_unrouted(model))
    return [*found, *([_redundancy(model)] if model["redundancy"] else [])]


def sharpness_word(sharpness: Mapping[str, float]) -> str:
    """sharp, nearly uniform or soft."""
    way = (sharpness["largest"] - sharpness["uniform"]) / (1 - sharpness["uniform"])
    if way >= SHARP:
        return "sharp"
    return "nearly uniform" if way < UNIFORM else "soft"


def use_word(effect: Mapping[str, Any]) -> str:
    """used, hardly used, harmful or unclear: of what happens without the routed term."""
    if effect["low"] > USED:
        return "used"
    if effect["high"] < -USED:
        return "harmful"
    return "hardly used" if effect["low"] >= -USED and effect["high"] <= USED else "unclear"


def _headline(model: Mapping[str, Any]) -> Finding:
    mean = model["sharpness"]["all"]
    how = sharpness_word(mean)
    text = (
        f"On average a site gives {mean['largest']:.2f} of its weight to one source (uniform "
        f"weights would give {mean['uniform']:.2f}) and reads as if from "
        f"{mean['effective_sources']:.1f} sources; entropy is {mean['normalised_entropy']:.0%} of "
        "its most."
    )
    if not model["probes"]:
        title = f"{how.capitalize()}; whether it is used was not probed"
        return Finding(title, f"{text} Weights alone do not say that they matter.", dict(mean))
    dropped = _effect(model["probes"], "drop_all")
    use = use_word(dropped)
    joint = {
        "used": "and used" if how == "sharp" else "but used",
        "hardly used": "but hardly used" if how == "sharp" else "and hardly used",
        "harmful": "and harmful on this text",
        "unclear": "and its use is unclear",
    }[use]
    text += f" Without the routed term at every site the loss {_change(dropped)}."
    return Finding(f"{how.capitalize()} {joint}", text, {**mean, **_numbers(dropped)})


def _tokens(probes: Mapping[str, Any]) -> Finding:
    fixed = _effect(probes, "mean")
    use = use_word(fixed)
    title = {
        "used": "The choice follows the token",
        "hardly used": "The choice could as well be fixed",
        "harmful": "Fixed weights would do better",
        "unclear": "Whether the choice follows the token is unclear",
    }[use]
    text = f"With each site's mean weights for every token the loss {_change(fixed)}."
    return Finding(title, text, _numbers(fixed))


def _mass(probes: Mapping[str, Any]) -> Finding:
    """Of every source at every site where that was probed, else of every source."""
    kind = "remove_at" if _effects(probes, "remove_at") else "remove_source"
    effects = _effects(probes, kind)
    what = "sources at sites" if kind == "remove_at" else "sources"
    agreement = rank_correlation(
        [effect["mass"] for effect in effects], [effect["difference"] for effect in effects]
    )
    if agreement is None:
        return Finding(
            "Mass says nothing", f"All {len(effects)} {what} are alike in mass or effect.", {}
        )
    title = "Mass tells what matters" if agreement >= AGREE else "Mass does not tell what matters"
    text = (
        f"Over {len(effects)} {what}, mean weight and the loss without them have a rank "
        f"correlation of {agreement:.2f} (1: the same order, 0: none)."
    )
    return Finding(title, text, {"rank_correlation": agreement, "count": len(effects)})


def _redundancy(model: Mapping[str, Any]) -> Finding:
    kinds = model["redundancy"]
    alike = [kind["kind"] for kind in kinds if kind["mean_cosine"] >= REDUNDANT]
    title = f"Redundant: {', '.join(alike)}" if alike else "No kind of source is redundant"
    parts = [
        f"{kind['kind']}s {kind['mean_cosine']:.2f} ({kind['effective_rank']:.1f} directions of "
        f"{kind['sources']})"
        for kind in kinds
    ]
    numbers = {f"{kind['kind']} cosine": kind["mean_cosine"] for kind in kinds}
    numbers |= {f"{kind['kind']} rank": kind["effective_rank"] for kind in kinds}
    return Finding(title, f"Mean cosine of neighbours: {'; '.join(parts)}.", numbers)


def _unrouted(model: Mapping[str, Any]) -> Finding:
    shown = ", ".join(model["decisions"]) or "the flow alone"
    text = f"Scheme '{model['scheme']['scheme']}' has none to look at; shown instead: {shown}."
    return Finding("No routing weights", text, {})


def _effects(probes: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [effect for effect in probes["effects"] if effect["kind"] == kind]


def _effect(probes: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return _effects(probes, kind)[0]


def _change(effect: Mapping[str, Any]) -> str:
    difference, low, high = (effect[key] for key in ("difference", "low", "high"))
    moves = "rises" if difference >= 0 else "falls"
    return f"{moves} by {abs(difference):.4f} nats a token (95 % interval {low:.4f} to {high:.4f})"


def _numbers(effect: Mapping[str, Any]) -> dict[str, float]:
    return {key: effect[key] for key in ("difference", "low", "high")}
