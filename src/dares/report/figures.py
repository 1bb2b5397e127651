"""Which figures a model gets, from its entry in routing.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dares.routing.plots import (
    decisions,
    effects,
    flow,
    heatmap,
    history,
    mass,
    redundancy,
    sharpness,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Picture:
    """A figure, what its file is called, and how to read it."""

    name: str
    title: str
    caption: str
    figure: Figure

    def __post_init__(self) -> None:
        # once: it will be drawn for the page and for two files, and this is most of the work
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


def shared_pictures(models: Sequence[Entry]) -> list[Picture]:
    """Several models on one axis."""
    routed = {model["name"]: model["sites"] for model in models if model["sites"]}
    if len(routed) < 2:
        return []
    caption = (
        "The largest weight a site gives, averaged over tokens, and the entropy of its weights as "
        "a share of the most it could be. Attention and MLP sites follow one another."
    )
    figure = sharpness.draw(routed)
    return [Picture("sharpness-of-all", "Sharpness against depth", caption, figure)]


def pictures(model: Entry) -> list[Picture]:
    """All that make sense for this model."""
    found: list[Picture] = []
    if model["sites"]:
        found += _routing(model)
    if model["text"] is not None:
        found += list(_probes(model)) if model["probes"] else []
        found += _decisions(model)
        found += _redundancy(model) + _flow(model)
    if model["history"]:
        found.append(_history(model["history"]))
    return found


def _routing(model: Entry) -> list[Picture]:
    sites = model["sites"]
    names, sources = [site["short"] for site in sites], [site["sources"] for site in sites]
    found = [
        Picture(
            "sharpness",
            "Sharpness by depth",
            "Dotted: what uniform weights would give. A site that reads one source alone has a "
            "largest weight of 1 and no entropy.",
            sharpness.draw({model["name"]: sites}),
        ),
        Picture(
            "heatmap",
            "Who reads what",
            "Mean weight of each source at each site (3a: attention of layer 3, 3m: its MLP). "
            "Empty: cannot be read there.",
            heatmap.draw(names, sources, [site["weights"] for site in sites]),
        ),
    ]
    token = model["token"]
    if token is not None:
        weights = [token["weights"][str(site["index"])] for site in sites]
        caption = f"Token {token['index']}, {token['text']!r}, after {token['before']!r}."
        figure = heatmap.draw(names, sources, weights, label="weight")
        found.append(Picture("token", "One token's weights", caption, figure))
    return found


def _probes(model: Entry) -> Iterator[Picture]:
    sites = model["sites"]
    by_kind: dict[str, list[Any]] = {}
    for effect in model["probes"]["effects"]:
        by_kind.setdefault(effect["kind"], []).append(effect)
    interval = f"Bars: 95 % intervals over {model['probes']['windows']} windows."
    whole = [e for kind in ("drop_all", "uniform", "mean", "scale") for e in by_kind[kind]]
    yield Picture(
        "probes",
        "Is it used?",
        f"What each intervention does to the loss; to the right is worse. {interval}",
        effects.draw_list(whole),
    )
    yield Picture(
        "probes-by-site",
        "Without the routed term at one site",
        f"That site reads the stream alone. {interval}",
        effects.draw_by_site(by_kind["drop_site"], sites),
    )
    pairs = by_kind.get("remove_at")
    yield Picture(
        "mass",
        "Mass against effect",
        "A dot for every source at every site: upwards is worse without it."
        if pairs
        else "A dot for every source, removed wherever it is read: upwards is worse without it.",
        mass.draw(
            pairs or by_kind["remove_source"], {site["index"]: site["kind"] for site in sites}
        ),
    )


def _decisions(model: Entry) -> list[Picture]:
    return [
        Picture(
            name.replace(" ", "-"),
            name.capitalize(),
            "Means over tokens, by site."
            if isinstance(decided[0]["mean"][0], float)
            else "Means over tokens, a square a site: row, the stream that receives; column, the "
            "one that gives.",
            decisions.draw(name, decided),
        )
        for name, decided in model["decisions"].items()
    ]


def _redundancy(model: Entry) -> list[Picture]:
    if not model["redundancy"]:
        return []
    caption = (
        "All three kinds from the same pass of this model, whichever it remembers itself; blocks "
        f"of {model['block_layers']} layers. Sources that point the same way leave a router "
        "nothing to choose."
    )
    return [
        Picture(
            "redundancy",
            "How different sources are",
            caption,
            redundancy.draw(model["redundancy"]),
        )
    ]


def _flow(model: Entry) -> list[Picture]:
    if model["flow"] is None:
        return []
    caption = (
        "Mean lengths over tokens: the stream that a site meets, what the site writes (delta), and "
        "what routing changes in what it reads."
    )
    figure = flow.draw(model["flow"], model["sites_per_layer"], model["gradient"])
    return [Picture("flow", "Flow", caption, figure)]


def _history(told: Entry) -> Picture:
    caption = (
        "On one validation row, a line a site, dark to bright with depth."
        if told["by_site"]
        else "On one validation row, the mean over sites: this run did not write down each."
    )
    figure = history.draw(told["steps"], told["largest"], told["entropy"])
    return Picture("history", "Over training", caption, figure)
