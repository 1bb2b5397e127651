"""A model's results on tasks and texts: what is missing in the file of results is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dares.evals.harness import Harness
from dares.evals.local import LocalData
from dares.evals.perplexity import choose_window, measure, start_token
from dares.evals.results import Results
from dares.evals.scoring import Scorer
from dares.evals.subject import Subject, load_subject
from dares.evals.texts import Text, read_text
from dares.provenance import versions


@dataclass(frozen=True)
class Request:
    """What is to be measured, of whichever model; checked at birth."""

    tasks: Sequence[str] = ()
    texts: Sequence[str | Path] = ()
    window: int | None = None  # None: 2,048, or what the model takes
    stride: int | None = None  # None: half the window
    limit: int | None = None  # items of each task, documents of each text
    rows: int | None = None  # a batch; None: as many as fit
    local: str | Path | None = None
    seed: int = 0
    command: str | None = None  # kept with the results

    def __post_init__(self) -> None:
        if not self.tasks and not self.texts:
            raise ValueError("nothing to measure: name --tasks (paper8 for example) or --text FILE")
        for name, value in (("limit", self.limit), ("batch", self.rows)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.local is not None and not self.tasks:
            raise ValueError("--local is for tasks: name some with --tasks")


class Watcher:
    """Told what happens; this one is silent."""

    def say(self, text: str) -> None:
        """Something that a person should know."""

    def progress(self, name: str, done: int, total: int) -> None:
        """How far a task or text is."""


@dataclass(frozen=True)
class _Job:
    name: str
    settings: dict[str, Any]
    run: Callable[[], dict[str, Any]]


class Evaluation:
    """A request whose texts are read and whose tasks are found: ready for any number of models."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._texts = [read_text(path, request.limit) for path in request.texts]
        names = [text.name for text in self._texts]
        for name in names:
            if names.count(name) > 1 or name in request.tasks:
                raise ValueError(f"two of the tasks and texts are called {name}: rename the file")
        local = None if request.local is None else LocalData(request.local)
        self._harness = Harness(request.tasks, local) if request.tasks else None

    @property
    def names(self) -> list[str]:
        """The tasks and texts."""
        return [*self._request.tasks, *(text.name for text in self._texts)]

    def of(self, model: str, out: str | Path, watcher: Watcher | None = None) -> Results:
        """The results of a model, in a file that is gone on with if it is there."""
        watcher, out = watcher or Watcher(), Path(out)
        if out.is_dir():
            raise ValueError(f"{out} is a folder: name a file for the results, as results.json")
        if out.exists():
            Results.read(out)  # told before a model is loaded
        watcher.say(f"loading {model}")
        subject = load_subject(model)
        results = Results.open(out, _describe(subject))
        jobs = self._jobs(subject, watcher)
        missing = [job for job in jobs if not results.has(job.name, job.settings)]
        for job in jobs:
            if job not in missing:
                watcher.say(f"{job.name}: done before, in {out}")
        for job in missing:
            start = time.perf_counter()
            found = job.run()
            seconds = time.perf_counter() - start
            made = {"versions": versions(), "command": self._request.command, "seconds": seconds}
            results.put(job.name, {"settings": job.settings, **made, **found})
            watcher.say(f"{job.name}: {seconds:.0f} s")
        return results

    def _jobs(self, subject: Subject, watcher: Watcher) -> list[_Job]:
        request = self._request
        scorer = Scorer(subject.model, request.rows)
        jobs = []
        if self._harness is not None:
            from dares.evals.harness_model import HarnessModel

            model = HarnessModel(subject, scorer, request.rows)
            for name in request.tasks:
                settings = self._harness.settings(name)
                settings |= {"limit": request.limit, "seed": request.seed}
                jobs.append(_Job(name, settings, partial(self._run_task, name, model, watcher)))
        for text in self._texts:
            window, stride = choose_window(subject.positions, request.window, request.stride)
            settings = {"text": text.hash, "limit": request.limit}
            settings |= {"window": window, "stride": stride, "start": start_token(subject)}
            run = partial(_run_text, subject, text, window, stride, scorer, watcher)
            jobs.append(_Job(text.name, settings, run))
        return jobs

    def _run_task(self, name: str, model: Any, watcher: Watcher) -> dict[str, Any]:
        assert self._harness is not None
        model.progress = partial(watcher.progress, name)
        found = self._harness.run(name, model, limit=self._request.limit, seed=self._request.seed)
        return {"kind": "task", **found}


def _run_text(
    subject: Subject, text: Text, window: int, stride: int, scorer: Scorer, watcher: Watcher
) -> dict[str, Any]:
    progress = partial(watcher.progress, text.name)
    found = measure(subject, text, window=window, stride=stride, scorer=scorer, progress=progress)
    return {"kind": "text", **found}


def _describe(subject: Subject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "fingerprint": subject.fingerprint(),
        "type": subject.model.config.model_type,
        "parameters": subject.model.num_parameters(),
        "dtype": subject.dtype,
        "device": subject.model.device.type,
    }
