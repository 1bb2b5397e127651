"""Tasks of lm-evaluation-harness: found before a model is loaded, run one by one."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import math
import random
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dares.evals.local import LocalData
from dares.evals.paper8 import NAME, PAPER8
from dares.names import unknown_name

if TYPE_CHECKING:
    from dares.evals.harness_model import HarnessModel


class Harness:
    """The tasks that were asked for, which all exist; from local copies of their data if given."""

    def __init__(self, names: Sequence[str], local: LocalData | None = None) -> None:
        if importlib.util.find_spec("lm_eval") is None:
            raise ValueError("tasks need lm-eval, not installed here: pip install 'dares[eval]'")
        self._quieten()
        self._local = local
        if local is not None:
            self._data = {name: f"local {local.fingerprint(name)}" for name in names}
        else:
            self._data = dict.fromkeys(names, "harness")
        self._manager = _manager(names)
        for name in names:
            if name not in self._manager.all_tasks:
                near = get_close_matches(name, self._manager.all_tasks, n=5)
                raise ValueError(unknown_name("task", name, [*near, NAME, *PAPER8]))

    def settings(self, name: str) -> dict[str, Any]:
        """What a task's results follow from, besides the model, the limit and the seed."""
        from lm_eval import __version__

        return {"data": self._data[name], "shots": 0, "lm_eval": __version__}

    def run(
        self, name: str, model: HarnessModel, *, limit: int | None, seed: int
    ) -> dict[str, Any]:
        """The results of a task: its metric, and every item's values."""
        from lm_eval.evaluator import evaluate

        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        tasks = self._load(name, limit)
        for task in tasks.values():
            task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=seed)
        chosen = None
        if limit is not None:
            chosen = first_items({each: len(task.eval_docs) for each, task in tasks.items()}, limit)
            tasks = {each: tasks[each] for each in chosen}
        model.truncated = 0
        answer = evaluate(lm=model, task_dict={"tasks": tasks}, samples=chosen, bootstrap_iters=0)
        items = [
            _item(each, sample)
            for each, samples in answer["samples"].items()
            for sample in samples
            if sample["filter"] == samples[0]["filter"]  # others are readings of the same answer
        ]
        metric = _metric(name, items)
        values = [item["values"][metric] for item in items]
        higher = next(iter(tasks.values())).higher_is_better()[metric]
        return {
            "metric": metric,
            "value": float(np.mean(values)),
            "standard_error": float(np.std(values, ddof=1) / math.sqrt(len(values)))
            if len(values) > 1
            else None,
            "higher_is_better": bool(higher),
            "truncated": model.truncated,
            "items": items,
        }

    def _load(self, name: str, limit: int | None) -> dict[str, Any]:
        """The task, or the tasks that a group is made of."""
        asked: Any = name
        if self._local is not None:
            subjects = [each for each in self._manager.all_subtasks if each.startswith("mmlu_")]
            asked = self._local.definition(name, subjects, limit)
        try:
            return dict(self._manager.load([asked])["tasks"])
        except OSError as error:  # no network, or nothing under that name any more
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"the data of {name} cannot be loaded ({reason}): go online, or use --local"
            ) from error

    @staticmethod
    def _quieten() -> None:
        """The harness tells much that is meant for those who work on it."""
        import datasets
        import tqdm
        from lm_eval.api import task

        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        datasets.disable_progress_bars()
        # it has no setting for this bar, and TQDM_DISABLE is read long before we are
        task.tqdm = partial(tqdm.tqdm, disable=True)


def first_items(sizes: Mapping[str, int], limit: int) -> dict[str, list[int]]:
    """The first items of a task, or of the tasks of a group in turn: `limit` of them in all.

    >>> first_items({"mmlu_anatomy": 9, "mmlu_virology": 1, "mmlu_nutrition": 9}, 5)
    {'mmlu_anatomy': [0, 1], 'mmlu_nutrition': [0, 1], 'mmlu_virology': [0]}
    """
    turns = sorted((item, name) for name, size in sizes.items() for item in range(size))
    chosen: dict[str, list[int]] = {}
    for item, name in sorted(turns[:limit], key=lambda turn: (turn[1], turn[0])):
        chosen.setdefault(name, []).append(item)
    return chosen


def _manager(names: Sequence[str]) -> Any:
    from lm_eval import tasks

    if all(name in PAPER8 for name in names):
        home = Path(tasks.__file__).parent
        folders = sorted({PAPER8[name].folder for name in names})
        return tasks.TaskManager(
            include_defaults=False, include_path=[home / folder for folder in folders]
        )
    return tasks.TaskManager()


def _item(task: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    """One item: which it is, what was asked, and what came of it."""
    asked = json.dumps([sample["arguments"], sample["target"]], default=str)
    values = {name: sample[name] for name in sample["metrics"]}
    return {
        "id": f"{task}/{sample['doc_id']}",
        "hash": hashlib.blake2b(asked.encode(), digest_size=8).hexdigest(),
        "values": {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, int | float | np.number)
        },
        "log_probabilities": [
            answer[0] for answer in sample["filtered_resps"] if isinstance(answer, tuple)
        ],
    }


def _metric(name: str, items: Sequence[Mapping[str, Any]]) -> str:
    """The metric of the paper's table; for other tasks the first that each item has a number of."""
    shared = [
        metric for metric in items[0]["values"] if all(metric in each["values"] for each in items)
    ]
    if name in PAPER8:
        assert PAPER8[name].metric in shared
        return PAPER8[name].metric
    if not shared:
        raise ValueError(f"{name} has no metric with a number for each item: choose another task")
    return shared[0]
