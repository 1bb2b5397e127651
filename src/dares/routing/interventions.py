"""What if a site chose otherwise? Changes of the routing while a block of code runs.

The model is mixed by the plain formula (backend "naive") meanwhile, whose scores an intervention
can change before the softmax. Parameters and the model's own backend are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dares.names import unknown_name
from dares.ops.depth_mix import BACKENDS, MixPlan, MixState, ReadRule
from dares.ops.depth_mix.naive import NaiveMixer
from dares.routing.sites import scheme_of
from dares.schemes import ResidualScheme, RoutedScheme


def _unchanged(site: int, scores: Tensor) -> Tensor:
    return scores


@dataclass(frozen=True)
class Intervention:
    """rescore changes a site's scores [..., n]; `dropped` sites read the stream, unrouted."""

    rescore: Callable[[int, Tensor], Tensor] = _unchanged
    dropped: frozenset[int] = frozenset()


@contextmanager
def intervening(model: Any, *interventions: Intervention) -> Iterator[None]:
    """Forward passes inside are done under the interventions, one after the other.

    None at all is the model as it is, mixed by the plain formula: what to compare with.
    """
    scheme = routed_scheme_of(model)
    if scheme.backend not in ("auto", *BACKENDS):
        raise ValueError("an intervention is at work already: give all of them to one call")
    site_of_router = {router: site for site, router in scheme.router_of_site.items()}
    with scheme.mixing_with(lambda plan: _ProbedMixer(plan, site_of_router, interventions)):
        yield


class _ProbedMixer(NaiveMixer):
    """The plain formula with other scores."""

    def __init__(
        self, plan: MixPlan, sites: Mapping[int, int], interventions: Sequence[Intervention]
    ) -> None:
        super().__init__(plan)
        self.sites, self.interventions = sites, interventions

    def rescore(self, router: int, scores: Tensor) -> Tensor:
        for each in self.interventions:
            scores = each.rescore(self.sites[router], scores)
        if bool((scores == -torch.inf).all(-1).any()):
            raise ValueError(
                f"site {self.sites[router]} has no source left to read: remove fewer, or drop its "
                "routed term"
            )
        return scores

    def read(
        self, state: MixState, router: int, stream: Tensor, rule: ReadRule, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        read, weights = super().read(state, router, stream, rule, **options)
        dropped = any(self.sites[router] in each.dropped for each in self.interventions)
        return stream if dropped else read, weights


# -- the interventions there are -----------------------------------------------------------------


def remove_source(
    scheme: ResidualScheme, source: str, sites: Collection[int] | None = None
) -> Intervention:
    """No weight for a source, at those sites or wherever it can be read; the rest share it."""
    readers = _readers(scheme, source)
    chosen = set(readers if sites is None else sites)
    for site in chosen - set(readers):
        raise ValueError(
            f"site {site}: {unknown_name('source', source, scheme.source_labels(site))}"
        )
    return Intervention(partial(_without, {site: readers[site] for site in chosen}))


def _readers(scheme: ResidualScheme, source: str) -> dict[int, int]:
    """The sites that can read a source, and its place in each one's bank."""
    found, known = {}, {}
    for site in range(scheme.read_sites):
        labels = scheme.source_labels(site)
        known.update(dict.fromkeys(labels))
        if source in labels:
            found[site] = labels.index(source)
    if not found:
        raise ValueError(unknown_name("source", source, known))
    return found


def _without(places: Mapping[int, int], site: int, scores: Tensor) -> Tensor:
    if site not in places:
        return scores
    others = torch.arange(scores.shape[-1], device=scores.device) != places[site]
    return torch.where(others, scores, -torch.inf)


def scale_scores(factor: float) -> Intervention:
    """Every score times a factor: above 1 the choice is sharper, below 1 softer."""
    if not 0 <= factor < float("inf"):
        raise ValueError(f"factor must be zero or more, got {factor!r}")
    return Intervention(lambda site, scores: scores * factor)


def uniform_weights() -> Intervention:
    """Every source alike, at every site."""
    return scale_scores(0.0)


def fixed_weights(weights: Mapping[int, Sequence[float]]) -> Intervention:
    """The same weights for every token, by site; sites that are not named choose as before."""
    logs = {site: torch.tensor(row, dtype=torch.float64).log() for site, row in weights.items()}

    def rescore(site: int, scores: Tensor) -> Tensor:
        return logs[site].to(scores).expand_as(scores) if site in logs else scores

    return Intervention(rescore)


def drop_routed(scheme: ResidualScheme, sites: Collection[int] | None = None) -> Intervention:
    """Those sites, or all, read the stream alone, as in the standard residual."""
    known = [site for site in range(scheme.read_sites) if scheme.source_labels(site)]
    for site in sites or ():
        if site not in known:
            raise ValueError(f"site {site} routes nothing: choose among {known}")
    return Intervention(dropped=frozenset(known if sites is None else sites))


def routed_scheme_of(model: Any) -> RoutedScheme:
    """The model's scheme, if it has routing weights to change."""
    scheme = scheme_of(model)
    if not isinstance(scheme, RoutedScheme):
        raise ValueError(
            f"scheme {scheme.config.scheme!r} has no routing weights, so there is nothing to "
            "intervene in: take a routed model, such as one of scheme delta_block"
        )
    return scheme
