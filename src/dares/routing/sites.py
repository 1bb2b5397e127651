"""What the sites of a model are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dares.schemes import ResidualScheme

KINDS = ("attention", "mlp")


@dataclass(frozen=True)
class Site:
    """One place that reads; `layer` is None for the final norm."""

    index: int
    layer: int | None
    depth: float  # in layers: the MLP of layer 3 is at 3.5, the final norm after the last layer
    kind: str  # attention, mlp, final; in other models: sublayer 0, sublayer 1, ...

    @property
    def short(self) -> str:
        """As on an axis: 3a, 3m, final."""
        return self.kind if self.layer is None else f"{self.layer}{_letter(self.kind)}"

    @property
    def name(self) -> str:
        """As in a sentence: layer 3 mlp, final norm."""
        return "final norm" if self.layer is None else f"layer {self.layer} {self.kind}"


def _letter(kind: str) -> str:
    return kind[0] if kind in KINDS else f".{kind.split()[-1]}"


def site_of(scheme: ResidualScheme, index: int) -> Site:
    """The site of that number; number `scheme.sites` is the final norm."""
    depth = index / scheme.sites_per_layer
    if index == scheme.sites:
        return Site(index, None, depth, "final")
    layer, place = divmod(index, scheme.sites_per_layer)
    usual = scheme.sites_per_layer == len(KINDS)
    return Site(index, layer, depth, KINDS[place] if usual else f"sublayer {place}")


def scheme_of(model: Any) -> ResidualScheme:
    """The residual scheme that a model carries."""
    inner = getattr(model, "base_model", model)
    scheme = getattr(inner, "depth", None)
    if not isinstance(scheme, ResidualScheme):
        raise ValueError(
            f"{type(model).__name__} has no residual scheme to look at: "
            "give it one with dares.convert (`dares convert`), or take a model that dares trained"
        )
    return scheme


def routed_sites(scheme: ResidualScheme) -> list[Site]:
    """The sites that choose between sources."""
    return [site_of(scheme, i) for i in range(scheme.read_sites) if scheme.source_labels(i)]
