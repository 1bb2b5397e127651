"""A model's routing over a text, as statistics: from the fast path's own weights, in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dares.routing import metrics
from dares.routing.flow import Flow, FlowSums
from dares.routing.passes import Batch, Pass, Rows, evaluating, rows_of, run
from dares.routing.redundancy import Redundancy, RedundancySums
from dares.routing.samples import Progress, Samples, watching
from dares.routing.sites import Site, routed_sites, scheme_of, site_of
from dares.routing.sums import Mean, plain
from dares.schemes import ResidualScheme


@dataclass(frozen=True)
class SiteRouting:
    """One site's choice: means over tokens; metrics.py says what each number is."""

    site: Site
    sources: list[str]
    weights: list[float]  # the mean weight of each source
    largest: float
    entropy: float
    normalised_entropy: float
    effective_sources: float
    utilisation: float
    variation: float  # entropy of the mean weights less mean entropy: 0 if all tokens choose alike


@dataclass(frozen=True)
class SiteDecision:
    """What a site of another scheme decides: see `Decision`. Means over tokens, and the spread."""

    site: Site
    labels: list[str]
    mean: list[Any]
    spread: list[Any]


@dataclass(frozen=True)
class TokenRouting:
    """One token's weights: the token at `index` of the text, by site."""

    index: int
    token_id: int
    weights: dict[int, list[float]]


@dataclass(frozen=True)
class Recording:
    """What `record` found. Fields are empty or None where the scheme has no such thing."""

    tokens: int
    loss: float | None  # nats a predicted token; None if no row had two tokens
    sites: list[SiteRouting]
    token: TokenRouting | None
    decisions: dict[str, list[SiteDecision]]
    flow: Flow | None
    redundancy: list[Redundancy]

    @property
    def mean_weights(self) -> dict[int, list[float]]:
        """By site."""
        return {each.site.index: each.weights for each in self.sites}


@torch.no_grad()
def record(
    model: Any,
    batches: Iterable[Batch],
    *,
    token: int | None = None,
    watch: bool = True,
    progress: Progress | None = None,
) -> Recording:
    """Run the model over batches and say how it routes.

    batches   token ids [B, T], or {"input_ids", "attention_mask"}; padding is left out everywhere
    token     keep this token's own weights too (counted from 0 over all batches)
    watch     also take the norms, the redundancy of sources and what other schemes decide
    progress  is told how many tokens were done since

    Statistics are summed in float64 as they come: memory does not grow with the text.
    """
    recorder = _Recorder(scheme_of(model), token)
    with evaluating(model):
        for batch in batches:
            rows = rows_of(model, batch)
            samples = Samples(recorder.scheme, rows.mask) if watch else None
            with watching(recorder.scheme, samples):
                done = run(model, rows, record=True)
            recorder.add(rows, done, samples)
            if progress is not None:
                progress(int(rows.mask.sum()))
    return recorder.result()


class _Recorder:
    """Adds up passes."""

    def __init__(self, scheme: ResidualScheme, token: int | None) -> None:
        self.scheme, self.token = scheme, token
        self.sites = {site.index: _WeightSums(site) for site in routed_sites(scheme)}
        self.flow, self.redundancy = FlowSums(), RedundancySums(scheme)
        self.decisions: dict[str, dict[int, tuple[list[str], Mean]]] = {}
        self.tokens, self.predicted, self.loss_sum = 0, 0, 0.0
        self.chosen: TokenRouting | None = None

    def add(self, rows: Rows, done: Pass, samples: Samples | None) -> None:
        routing = done.routing
        assert routing is not None, "the pass was not recorded"
        own = {site: self._of_tokens(routing[site], rows.mask) for site in self.sites}
        for site, weights in own.items():
            self.sites[site].add(weights)
        if samples is not None and len(samples):
            self.flow.add(samples)
            self.redundancy.add(samples)
            self._add_decisions(samples)
        here = int(rows.mask.sum())
        if self.token is not None and self.tokens <= self.token < self.tokens + here:
            place = self.token - self.tokens
            weights_of_token = {site: plain(weights[place]) for site, weights in own.items()}
            token_id = int(rows.ids[rows.mask][place])
            self.chosen = TokenRouting(self.token, token_id, weights_of_token)
        self.tokens += here
        self.loss_sum += float(done.loss_sums.sum())
        self.predicted += int(done.predicted.sum())

    @staticmethod
    def _of_tokens(weights: Tensor | None, mask: Tensor) -> Tensor:
        """[N, n] without the padding."""
        assert weights is not None, "a site that chooses has weights"
        return weights[mask].double()

    def _add_decisions(self, samples: Samples) -> None:
        for site, named in samples.decisions.items():
            for name, (labels, values) in named.items():
                sites = self.decisions.setdefault(name, {})
                sites.setdefault(site, (labels, Mean()))[1].add(values)

    def result(self) -> Recording:
        if not self.tokens:
            raise ValueError("there were no tokens to look at: give some rows of tokens")
        if self.token is not None and self.chosen is None:
            raise ValueError(
                f"token {self.token} is not in the text: it has tokens 0 to {self.tokens - 1}"
            )
        decisions = {
            name: [
                SiteDecision(site_of(self.scheme, site), labels, plain(m.mean), plain(m.spread))
                for site, (labels, m) in sites.items()
            ]
            for name, sites in self.decisions.items()
        }
        return Recording(
            tokens=self.tokens,
            loss=self.loss_sum / self.predicted if self.predicted else None,
            sites=[
                sums.result(self.scheme.source_labels(site)) for site, sums in self.sites.items()
            ],
            token=self.chosen,
            decisions=decisions,
            flow=self.flow.result(),
            redundancy=self.redundancy.result(),
        )


class _WeightSums:
    """One site's weights, added up."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._weights, self._numbers = Mean(), Mean()

    def add(self, weights: Tensor) -> None:
        if not weights.isfinite().all():
            raise ValueError(
                f"the routing weights of site {self.site.index} ({self.site.name}) hold NaN: look "
                "for a diverged run or a damaged checkpoint"
            )
        self._weights.add(weights)
        numbers = [
            metrics.largest_weight(weights),
            metrics.entropy(weights),
            metrics.normalised_entropy(weights),
            metrics.effective_sources(weights),
        ]
        self._numbers.add(torch.stack(numbers, -1))

    def result(self, labels: list[str]) -> SiteRouting:
        mean = self._weights.mean
        largest, entropy, normalised, effective = plain(self._numbers.mean)
        return SiteRouting(
            site=self.site,
            sources=labels,
            weights=plain(mean),
            largest=largest,
            entropy=entropy,
            normalised_entropy=normalised,
            effective_sources=effective,
            utilisation=float(metrics.utilisation(mean)),
            variation=float(metrics.entropy(mean)) - entropy,
        )
