"""Is the routing used? Interventions, and what each does to the loss, with intervals.

Each window's loss is taken with and without the intervention, both by the plain formula, and
windows are resampled for the interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dares.evals.bootstrap import interval, resampled_sums
from dares.names import unknown_name
from dares.routing.interventions import (
    Intervention,
    drop_routed,
    fixed_weights,
    intervening,
    remove_source,
    routed_scheme_of,
    scale_scores,
    uniform_weights,
)
from dares.routing.passes import Batch, evaluating, rows_of, run
from dares.routing.samples import Progress
from dares.routing.sites import routed_sites
from dares.schemes import ResidualScheme

LEVELS = ("none", "fast", "all")
FACTORS = (0.5, 2.0, 4.0)
RESAMPLES = 2000


@dataclass(frozen=True)
class Probe:
    """An intervention by name. `mass` is the mean weight of what it takes away, where it does."""

    kind: str  # uniform, mean, scale, drop_all, drop_site, remove_source, remove_at
    name: str
    intervention: Intervention
    site: int | None = None
    source: str | None = None
    mass: float | None = None


@dataclass(frozen=True)
class Effect:
    """What a probe did to the loss: nats a token, with a 95 % interval over windows."""

    kind: str
    name: str
    difference: float
    low: float
    high: float
    site: int | None
    source: str | None
    mass: float | None


@dataclass(frozen=True)
class ProbeResults:
    """The loss without a probe, and every probe's effect on it."""

    loss: float
    predicted: int
    windows: int
    effects: list[Effect]


def check_level(level: str) -> str:
    """The level, if there is such a one."""
    if level not in LEVELS:
        raise ValueError(unknown_name("--probes", level, LEVELS))
    return level


def plan_probes(
    scheme: ResidualScheme, mean_weights: Mapping[int, Sequence[float]], level: str = "fast"
) -> list[Probe]:
    """The probes of a level: "fast" asks of the whole model, each site and each source.

    "all" also asks of every source at every site. mean_weights: of each site, from a recording.
    """
    check_level(level)
    if level == "none":
        return []
    probes = [
        Probe("drop_all", "no routed term anywhere", drop_routed(scheme)),
        Probe("uniform", "uniform weights", uniform_weights()),
        Probe("mean", "each site's mean weights", fixed_weights(mean_weights)),
        *(Probe("scale", f"scores x {f:g}", scale_scores(f)) for f in FACTORS),
    ]
    masses: dict[str, list[float]] = {}
    for site in routed_sites(scheme):
        name, dropped = f"no routed term at {site.name}", drop_routed(scheme, [site.index])
        probes.append(Probe("drop_site", name, dropped, site=site.index))
        labels = scheme.source_labels(site.index)
        for source, mass in zip(labels, mean_weights[site.index], strict=True):
            masses.setdefault(source, []).append(mass)
    for source, weights in masses.items():
        mass = sum(weights) / len(weights)
        removed = remove_source(scheme, source)
        probes.append(
            Probe("remove_source", f"without {source}", removed, source=source, mass=mass)
        )
    return probes + (_pairs(scheme, mean_weights) if level == "all" else [])


def _pairs(scheme: ResidualScheme, mean_weights: Mapping[int, Sequence[float]]) -> list[Probe]:
    return [
        Probe(
            "remove_at",
            f"without {source} at {site.name}",
            remove_source(scheme, source, [site.index]),
            site.index,
            source,
            mass,
        )
        for site in routed_sites(scheme)
        for source, mass in zip(
            scheme.source_labels(site.index), mean_weights[site.index], strict=True
        )
    ]


@torch.no_grad()
def seconds_for(model: Any, batch: Batch, batches: int, probes: int) -> float:
    """About how long `measure` will take, from one pass over a batch."""
    rows = rows_of(model, batch)
    with evaluating(model), intervening(model):
        run(model, rows)
        start = time.perf_counter()
        run(model, rows)
        return (time.perf_counter() - start) * batches * (1 + probes)


@torch.no_grad()
def measure(
    model: Any,
    batches: Iterable[Batch],
    probes: Sequence[Probe],
    *,
    progress: Progress | None = None,
    seed: int = 0,
) -> ProbeResults:
    """The effect of each probe on the loss of the rows; progress is told of every pass."""
    routed_scheme_of(model)
    losses: list[np.ndarray] = []  # [rows, 1 + probes] a batch
    counts: list[np.ndarray] = []
    with evaluating(model):
        for batch in batches:
            rows, columns = rows_of(model, batch), []
            for interventions in [(), *((probe.intervention,) for probe in probes)]:
                with intervening(model, *interventions):
                    done = run(model, rows)
                columns.append(done.loss_sums.cpu().numpy())
                if progress is not None:
                    progress(1)
            losses.append(np.stack(columns, -1))
            counts.append(done.predicted.cpu().numpy())
    if not losses:
        raise ValueError("there were no rows to probe: give some rows of tokens")
    return _results(probes, np.concatenate(losses), np.concatenate(counts), seed)


def _results(
    probes: Sequence[Probe], losses: np.ndarray, counts: np.ndarray, seed: int
) -> ProbeResults:
    windows, predicted = len(losses), int(counts.sum())
    if windows < 2:
        raise ValueError(
            f"intervals need at least 2 windows to resample, got {windows}: give more text, or "
            "--probes none"
        )
    if not np.isfinite(losses[:, 0]).all():
        raise ValueError("the model's loss is not finite on this text: is the checkpoint whole?")
    differences = losses[:, 1:] - losses[:, :1]
    table = np.concatenate([differences, counts[:, None]], 1).astype(np.float64)
    draws = resampled_sums(table, resamples=RESAMPLES, seed=seed)
    effects = []
    for column, probe in enumerate(probes):
        low, high = interval(draws[:, column] / draws[:, -1], windows)
        effects.append(
            Effect(
                kind=probe.kind,
                name=probe.name,
                difference=float(differences[:, column].sum() / predicted),
                low=low,
                high=high,
                site=probe.site,
                source=probe.source,
                mass=probe.mass,
            )
        )
    loss = float(losses[:, 0].sum() / predicted)
    return ProbeResults(loss, predicted, windows, effects)
