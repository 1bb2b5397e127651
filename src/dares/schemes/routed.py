"""Routed residuals: sources x router x merge. AttnRes, Delta, Delta Block and the controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dares.config import DepthConfig
from dares.ops.depth_mix import DepthMixer, MixPlan, ReadRule, build_mixers, choose_backend
from dares.schemes.base import ResidualScheme
from dares.schemes.sources import RoutedState, build_sources


def read_rule(merge: str, sources: int, *, read_scale: str, telescopes: bool) -> ReadRule:
    """The constants of a read over n sources (n counts the null source).

    The papers read  mix  (replace) or  h + mix  (add). With read_scale "stream" the read carries
    the constant that undoes uniform weights:  n * mix  and  (h + mix) * n / (n + 1).  Where the
    bank sums to h, mix = h/n + sum_i (a_i - 1/n) u_i, and both become h plus a correction that is
    zero at uniform weights: the same function, and the identity at the start holds to the last
    bit, in every dtype.
    """
    n = sources
    if merge == "gate":
        return ReadRule(1.0, 1.0, False)  # times the site's own gate
    if read_scale == "none":
        return ReadRule(1.0 if merge == "add" else 0.0, 1.0, False)
    scale = n / (n + 1) if merge == "add" else float(n)
    if telescopes:
        return ReadRule(1.0, scale, True)
    return ReadRule(scale if merge == "add" else 0.0, scale, False)


def _stretch(sites: int, sites_per_layer: int) -> int:
    """Sites a group, whole layers of them.

    A group costs a pass over the older sources, a site one over the younger of its group: about
    S^2/(2 G) against S G/2 reads, the former some 2.5 times as dear (measured on CPU).
    """
    layers = max(1, round((2.5 * sites) ** 0.5 / sites_per_layer))
    return layers * sites_per_layer


class RoutedScheme(ResidualScheme):
    """z_i = q_s . (g_s * u_i / rms(u_i)),  a = softmax_i(z),  mix = sum_i a_i u_i

    read = mix (replace), h + mix (add), h + alpha_s * mix (gate), each with the constant of
    `read_rule`;  h <- h + delta.  The routed term goes into the sublayer and never into h.

    h, u_i, read: [..., D];  query, gain: [routers, D];  gate: [routers]   (2603.15031, 2605.18855)

    A site with one source has nothing to choose: it has no router and reads h.
    """

    def __init__(self, config: DepthConfig, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.sources = build_sources(
            config,
            width=self.width,
            sites_per_layer=self.sites_per_layer,
            parallel=self.parallel,
        )
        routed = [site for site in range(self.sites) if self._chooses(site)]
        self.gated = len(routed) if config.merge == "gate" else 0
        if self._chooses(self.sites):
            routed.append(self.sites)
        if not routed:
            raise ValueError(
                f"no site of a model with {self.sites} sites has more than one source to read: "
                "use preset('standard')"
            )
        self.router_of_site = {site: router for router, site in enumerate(routed)}
        # a source that is finished after so many writes is read by this router and those after it
        self._next_router = [
            sum(self._writes_at(site) < written for site in routed)
            for written in range(self.sites + 1)
        ]
        self._use_backend(self.backend)
        # float32 whatever the model is: a gain of 1.0 in bf16 would never move
        self.query = nn.Parameter(torch.empty(len(routed), self.width, dtype=torch.float32))
        self.gain = nn.Parameter(torch.empty_like(self.query))
        if self.gated:
            self.gate = nn.Parameter(torch.empty(self.gated, dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # nn.init, which transformers makes aware of what was loaded from a checkpoint
        if self.config.query_std:
            nn.init.normal_(self.query, std=self.config.query_std)
        else:
            nn.init.zeros_(self.query)
        nn.init.ones_(self.gain)
        if self.gated:
            nn.init.zeros_(self.gate)
        self.sources.reset_parameters()

    # -- how it is computed --------------------------------------------------------------------

    def _use_backend(self, name: str) -> None:
        if hasattr(self, "router_of_site"):  # else it is not built yet
            self._mixers: dict[str, DepthMixer] = build_mixers(name, self._plan())

    def _plan(self) -> MixPlan:
        return MixPlan(
            groups=self._groups(),
            sources=len(self.sources.labels(self.sites)),
            null=self.config.null_source,
            eps=self.config.eps,
        )

    @contextmanager
    def mixing_with(self, make: Callable[[MixPlan], DepthMixer]) -> Iterator[None]:
        """Passes that begin inside are mixed by what `make` gives, whatever the backend is."""
        kept = self._mixers, self._backend
        self._mixers, self._backend = {"given": make(self._plan())}, "given"
        try:
            yield
        finally:
            self._mixers, self._backend = kept

    def _choose_mixer(self, embeddings: Tensor) -> DepthMixer:
        return self._mixers[choose_backend(self.backend, embeddings, self._mixers)]

    def _groups(self) -> tuple[int, ...]:
        """How many routers each group has: a block's, or those of a stretch of sites."""
        stretch = self.sources.group_sites or _stretch(self.sites, self.sites_per_layer)
        # the final read, if there is one, joins the last group: alone it would cost a whole pass
        last = self.sites - 1
        counts = Counter(min(site, last) // stretch for site in self.router_of_site)
        return tuple(counts[index] for index in sorted(counts))

    # -- the bank at a site --------------------------------------------------------------------

    @property
    def read_sites(self) -> int:
        return self.sites + (self.config.final == "routed")

    def source_labels(self, site: int) -> list[str]:
        return self._bank_labels(site) if self._chooses(site) else []

    def _bank_labels(self, site: int) -> list[str]:
        return self.sources.labels(self._writes_at(site)) + ["null"] * self.config.null_source

    def _writes_at(self, site: int) -> int:
        return self.sites if site == self.sites else self.writes_before(site)

    def _chooses(self, site: int) -> bool:
        asked = self.config.final == "routed" if site == self.sites else self.config.merge != "none"
        return asked and len(self._bank_labels(site)) > 1

    # -- the four calls ------------------------------------------------------------------------

    def _start(self, embeddings: Tensor, *, record: bool) -> RoutedState:
        mixer = self._choose_mixer(embeddings).for_pass(record=record)
        bank = mixer.start(self.query * self.gain, record=record)
        mixer.append(bank, self.sources.first(embeddings), next_router=0)
        gates = self.gate.unbind() if self.gated else ()
        return RoutedState(stream=embeddings, mixer=mixer, bank=bank, gates=gates)

    def _read(self, state: RoutedState, site: int) -> Tensor:
        return self._routed_read(state, site, self.config.merge)

    def _write(self, state: RoutedState, site: int, delta: Tensor) -> None:
        moved = self._join_stream(state, site, delta)
        source = self.sources.finished(state, site, delta, stream_moved=moved)
        if source is not None:
            state.mixer.append(state.bank, source, next_router=self._next_router[site + 1])

    def _finish(self, state: RoutedState) -> Tensor:
        return self._routed_read(state, self.sites, "replace")

    def _routed_read(self, state: RoutedState, site: int, merge: str) -> Tensor:
        router = self.router_of_site.get(site)
        if router is None:
            return state.stream
        running = self.sources.unfinished(state)
        rule = read_rule(
            merge,
            len(state.bank.sources) + (running is not None) + self.config.null_source,
            read_scale=self.config.read_scale,
            telescopes=self.sources.telescopes,
        )
        if merge == "gate":
            rule = rule._replace(scale=state.gates[router])
        read, weights = state.mixer.read(
            state.bank,
            router,
            state.stream,
            rule,
            running=running,
            record=state.routing is not None,
        )
        if state.routing is not None and weights is not None:
            state.routing[site] = weights
        return read

    def carried_vectors(self) -> int:
        return len(self.sources.labels(self.sites))

    # -- identity ------------------------------------------------------------------------------

    def identity_obstacle(self) -> str | None:
        gated, query = self.gated, self.query.detach()
        if gated and self.gate.detach().any():
            return "the gates are no longer zero"
        ungated = query[gated:]
        if not len(ungated):
            return None
        if not self.sources.telescopes:
            missing = " without the running block" if self.config.sources == "block" else ""
            return (
                f"a bank of sources={self.config.sources!r}{missing} does not sum to the stream; "
                "merge='gate' with final='stream' converts exactly"
            )
        if self.config.read_scale != "stream":
            return (
                "read_scale='none' multiplies what a sublayer reads; "
                "read_scale='stream' converts exactly"
            )
        if ungated.any():
            return "the queries are not zero"
        return None

    def extra_repr(self) -> str:
        fields = self.config.to_dict()
        choices = ", ".join(f"{name}={fields[name]!r}" for name in ("sources", "merge", "final"))
        return f"{super().extra_repr()}, {choices}, routers={len(self.router_of_site)}"
