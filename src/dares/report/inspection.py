"""Look at models over a text: everything that the page shows, as plain JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dares.evals.evaluate import Watcher
from dares.evals.subject import Subject, load_subject, model_labels
from dares.provenance import known_versions
from dares.report.history import read_history
from dares.routing.findings import RULES, findings
from dares.routing.flow import gradient_norms
from dares.routing.probes import Probe, check_level, measure, plan_probes, seconds_for
from dares.routing.record import Recording, record
from dares.routing.redundancy import block_layers
from dares.routing.sites import Site, scheme_of
from dares.routing.windows import Windows

TOKENS = 12_288
WINDOW = 256
ROWS = 4
MOST = 7  # models on a page: as many as there are colours


@dataclass(frozen=True)
class Request:
    """What is to be looked at. probes None: "fast" where there is routing, else none."""

    models: Sequence[str]
    texts: Sequence[Path] = ()
    tokens: int = TOKENS
    window: int | None = None
    rows: int = ROWS
    probes: str | None = None
    token: int | None = None
    gradients: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        if self.probes is not None:
            check_level(self.probes)
        if self.token is not None and self.token < 0:
            raise ValueError(f"--token counts from 0, got {self.token}")
        if self.tokens < 1:
            raise ValueError(f"--tokens must be at least 1, got {self.tokens}")


def inspect(request: Request, watcher: Watcher) -> dict[str, Any]:
    """Every number there is to show, with the versions and the command that made it."""
    if len(request.models) > MOST:
        raise ValueError(
            f"{len(request.models)} models on one page could not be told apart: name at most {MOST}"
        )
    labels = model_labels(request.models)
    models = [
        _look(request, name, label, watcher)
        for name, label in zip(request.models, labels, strict=True)
    ]
    return {
        "versions": known_versions(),
        "command": request.command,
        "texts": [path.name for path in request.texts],
        "rules": RULES,
        "models": models,
    }


def _look(request: Request, name: str, label: str, watcher: Watcher) -> dict[str, Any]:
    history = read_history(name)
    if not request.texts:
        if history is None:
            raise ValueError(
                f"{name} is no run whose metrics tell of routing, so there is nothing to draw "
                "without a text: give one with --text FILE"
            )
        return {"name": label, "history": history, "sites": [], "findings": [], "text": None}
    subject = load_subject(name)
    watcher.say(f"{label}: loaded")
    return {"name": label, "history": history, **_Look(request, subject, label, watcher).entry()}


class _Look:
    """One model over the text."""

    def __init__(self, request: Request, subject: Subject, label: str, watcher: Watcher) -> None:
        self.request, self.subject, self.watcher, self.label = request, subject, watcher, label
        self.scheme = scheme_of(subject.model)
        self.routed = any(self.scheme.source_labels(i) for i in range(self.scheme.read_sites))
        if not self.routed and (request.token is not None or request.probes not in (None, "none")):
            asked = "--token" if request.token is not None else f"--probes {request.probes}"
            raise ValueError(
                f"{label} has no routing weights (scheme {self.scheme.config.scheme!r}), so "
                f"{asked} has nothing to show: leave it out"
            )
        self.windows = self._windows()

    def _windows(self) -> Windows:
        request, positions = self.request, self.subject.positions
        window = min(WINDOW, positions) if request.window is None else request.window
        if window > positions:
            raise ValueError(
                f"--window {window} is more than the {positions} positions of {self.label}: choose "
                "a smaller one"
            )
        count = math.ceil(request.tokens / window)
        return Windows(request.texts, self.subject.tokenizer, window, count, request.rows)

    def entry(self) -> dict[str, Any]:
        scheme, model = self.scheme, self.subject.model
        total = self.windows.count * self.windows.window
        token = self.request.token
        if token is None and self.routed:
            token = self.windows.window - 1  # the first that has a whole window before it
        recording = record(model, self.windows, token=token, progress=self._bar("text", total))
        if recording.tokens < self.request.tokens:
            self.watcher.say(
                f"{self.label}: the text has {recording.tokens:,} tokens in whole windows, fewer "
                f"than the {self.request.tokens:,} asked for"
            )
        found: dict[str, Any] = {
            "scheme": scheme.config.to_dict(),
            "layers": scheme.sites // scheme.sites_per_layer,
            "sites_per_layer": scheme.sites_per_layer,
            "width": scheme.width,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "scheme_parameters": sum(parameter.numel() for parameter in scheme.parameters()),
            "text": {
                "tokens": recording.tokens,
                "asked": self.request.tokens,
                "window": self.windows.window,
                "loss": recording.loss,
            },
            "block_layers": block_layers(scheme),
            **_statistics(recording),
            "token": self._token(recording),
            "gradient": self._gradient(),
            "probes": self._probes(recording),
        }
        found["findings"] = [dataclasses.asdict(each) for each in findings(found)]
        return found

    def _bar(self, what: str, total: int) -> Callable[[int], None]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.watcher.progress(f"{self.label}: {what}", done, total)

        return advance

    def _token(self, recording: Recording) -> dict[str, Any] | None:
        token = recording.token
        if token is None:
            return None
        window = token.index // self.windows.window
        rows = (row for batch in self.windows for row in batch)
        row = next(row for place, row in enumerate(rows) if place == window)
        place = token.index % self.windows.window
        decode = self.subject.tokenizer.decode
        return {
            "index": token.index,
            "id": token.token_id,
            "text": decode([token.token_id]),
            "before": decode(row[max(0, place - 12) : place].tolist()),
            "weights": {str(site): weights for site, weights in token.weights.items()},
        }

    def _gradient(self) -> list[float] | None:
        if not self.request.gradients:
            return None
        total = self.windows.count * self.windows.window
        bar = self._bar("gradients", total)
        return gradient_norms(self.subject.model, self.windows, progress=bar)

    def _probes(self, recording: Recording) -> dict[str, Any] | None:
        level = self.request.probes or ("fast" if self.routed else "none")
        if level == "none":
            return None
        probes = plan_probes(self.scheme, recording.mean_weights, level)
        batches = math.ceil(recording.tokens / self.windows.window / self.windows.rows)
        passes = batches * (1 + len(probes))
        self.watcher.say(self._cost(probes, batches))
        bar = self._bar("probes", passes)
        results = measure(self.subject.model, self.windows, probes, progress=bar)
        return {"level": level, "passes": passes, **dataclasses.asdict(results)}

    def _cost(self, probes: Sequence[Probe], batches: int) -> str:
        seconds = seconds_for(self.subject.model, next(iter(self.windows)), batches, len(probes))
        time = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        return (
            f"{self.label}: {len(probes)} probes, {batches * (1 + len(probes)):,} forward passes: "
            f"about {time} (--probes none leaves them out)"
        )


def _statistics(recording: Recording) -> dict[str, Any]:
    """A recording as JSON has it; sites are flat."""
    sites = [_flat(dataclasses.asdict(each), each.site) for each in recording.sites]
    for site in sites:
        site["uniform"] = 1 / len(site["sources"])
    flow = recording.flow
    return {
        "sites": sites,
        "sharpness": _means(sites),
        "decisions": {
            name: [_flat(dataclasses.asdict(each), each.site) for each in decided]
            for name, decided in recording.decisions.items()
        },
        "flow": None if flow is None else dataclasses.asdict(flow),
        "redundancy": [dataclasses.asdict(each) for each in recording.redundancy],
    }


def _flat(entry: dict[str, Any], site: Site) -> dict[str, Any]:
    del entry["site"]
    return {**dataclasses.asdict(site), "short": site.short, "name": site.name, **entry}


MEANS = (
    "largest",
    "uniform",
    "entropy",
    "normalised_entropy",
    "effective_sources",
    "utilisation",
    "variation",
)


def _means(sites: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Over all sites, and over those of each kind."""
    kinds = sorted({site["kind"] for site in sites})
    groups = {"all": list(sites)} if sites else {}
    groups |= {kind: [site for site in sites if site["kind"] == kind] for kind in kinds}
    return {
        name: {key: math.fsum(site[key] for site in group) / len(group) for key in MEANS}
        for name, group in groups.items()
    }
