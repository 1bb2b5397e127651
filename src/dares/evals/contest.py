"""A comparison from beginning to end: results read or made, paired, and written as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dares.durable import write_whole
from dares.evals.bootstrap import RESAMPLES
from dares.evals.compare import Row, as_json, compare, markdown, shared_names
from dares.evals.evaluate import Evaluation, Request, Watcher
from dares.evals.results import Results
from dares.evals.subject import model_label
from dares.provenance import versions

TABLE, FIGURES, RESULTS = "compare.md", "compare.json", "results"


def hold_contest(
    models: Sequence[str],
    request: Request | None,
    out: str | Path,
    *,
    seed: int = 0,
    command: str | None = None,
    watcher: Watcher | None = None,
) -> list[Row]:
    """The rows of the comparison, which are also in OUT/compare.md and OUT/compare.json.

    models: files of results, which are read, and models, which are measured as the request says,
    with their results in OUT/results. Without a request: the tasks that all files have.
    """
    watcher, out = watcher or Watcher(), Path(out)
    if len(models) < 2:
        raise ValueError(f"a comparison takes two models or more, got {len(models)}")
    if out.is_file():
        raise ValueError(f"{out} is a file: name a folder with --out")
    labels = _labels(models)
    to_run = [model for model in models if not _is_file(model)]
    if to_run and request is None:
        raise ValueError(
            f"{to_run[0]} is to be measured: say on what, with --tasks or --text "
            "(a file of `dares eval` needs neither)"
        )
    evaluation = None if request is None else Evaluation(request)
    found = []
    for model, label in zip(models, labels, strict=True):
        if _is_file(model):
            found.append(Results.read(Path(model)))
        else:
            assert evaluation is not None
            found.append(evaluation.of(model, out / RESULTS / f"{label}.json", watcher))
    names = _names(labels, found, evaluation, watcher)
    rows = compare(labels, [results.tasks for results in found], names, seed=seed)
    described: dict[str, Any] = {
        "command": command,
        "versions": versions(),
        "seed": seed,
        "resamples": RESAMPLES,
        "models": [
            {"label": label, **results.model} for label, results in zip(labels, found, strict=True)
        ],
        "rows": as_json(rows),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / TABLE, markdown(rows))
        write_whole(out / FIGURES, json.dumps(described, indent=1) + "\n")
    except OSError as error:
        raise ValueError(f"{out} could not be written to ({error.strerror})") from error
    return rows


def _is_file(model: str) -> bool:
    return Path(model).is_file()


def _labels(models: Sequence[str]) -> list[str]:
    """Short names where they tell the models apart, else the paths, in a form for file names."""
    short = [_label(model) for model in models]
    if len(set(short)) < len(short):
        short = [model.strip("./").replace("/", "-").removesuffix(".json") for model in models]
    if len(set(short)) < len(short):
        raise ValueError(f"the same model twice: {', '.join(models)}; name different ones")
    return short


def _label(model: str) -> str:
    if _is_file(model):
        return model_label(Results.read(Path(model)).model["name"])
    return model_label(model)


def _names(
    labels: Sequence[str],
    found: Sequence[Results],
    evaluation: Evaluation | None,
    watcher: Watcher,
) -> list[str]:
    """What is compared: what was asked for, else what all have."""
    if evaluation is not None:
        for label, results in zip(labels, found, strict=True):
            for name in evaluation.names:
                if name not in results.tasks:
                    raise ValueError(
                        f"{results.path} has no results of {name} for {label}: evaluate it first"
                    )
        return evaluation.names
    shared, rest = shared_names([results.tasks for results in found])
    if not shared:
        raise ValueError(f"there is no task that {', '.join(labels)} all have results of")
    if rest:
        watcher.say(f"left out, since not all have them: {', '.join(rest)}")
    return shared
