"""One pass of a model over one text, with whatever the page can ask about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dares.explore.question import Switches
from dares.routing.interventions import intervening, remove_source, routed_scheme_of
from dares.routing.samples import length, watching
from dares.routing.sites import routed_sites
from dares.schemes import DepthState, ResidualScheme, Watcher


@dataclass(frozen=True)
class Reading:
    """What a pass gave, on the CPU.

    ids      [T]
    logits   [T, vocabulary]: row t is what the model predicts after token t
    weights  [T, n] by site, where a site chooses
    shares   [T] by the same sites: |read - stream| / |read|
    """

    ids: Tensor
    logits: Tensor
    weights: dict[int, Tensor]
    shares: dict[int, Tensor]


@torch.no_grad()
def read_text(
    model: Any, scheme: ResidualScheme | None, ids: Sequence[int], off: Switches
) -> Reading:
    """The model's pass over the tokens; with nothing off, exactly its own."""
    row = torch.tensor([list(ids)], device=model.device)
    routing: Sequence[Tensor | None] = ()
    shares: dict[int, Tensor] = {}
    with _switched_off(model, off):
        if scheme is None:
            output = model(input_ids=row, use_cache=False)
        else:
            with watching(scheme, _Shares(scheme, shares)):
                output = model(input_ids=row, use_cache=False, output_routing=True)
            routing = output.routing
    logits = output.logits[0].float().cpu()
    if not logits.isfinite().all():
        raise ValueError(
            "the model predicts NaN for this text: look for a diverged run or a damaged checkpoint"
        )
    weights = {site: each[0].cpu() for site, each in enumerate(routing) if each is not None}
    return Reading(row[0].cpu(), logits, weights, shares)


@contextmanager
def _switched_off(model: Any, off: Switches) -> Iterator[None]:
    if not off:  # the model's own fast path
        yield
        return
    scheme = routed_scheme_of(model)
    removed = []
    for source, site in off:
        if site is not None and site not in scheme.router_of_site:
            known = ", ".join(map(str, scheme.router_of_site))
            raise ValueError(f"site {site} does not choose what it reads: choose among {known}")
        removed.append(remove_source(scheme, source, None if site is None else [site]))
    with intervening(model, *removed):
        yield


class _Shares(Watcher):
    """How much of what a site reads is routing's doing."""

    def __init__(self, scheme: ResidualScheme, shares: dict[int, Tensor]) -> None:
        self.chosen = {site.index for site in routed_sites(scheme)}
        self.shares = shares

    def on_read(self, state: DepthState, site: int, read: Tensor) -> None:
        if site in self.chosen:
            changed, whole = length((read - state.stream)[0]), length(read[0])
            self.shares[site] = (changed / whole.clamp(min=torch.finfo(whole.dtype).tiny)).cpu()
