"""The eight tasks of the paper, zero-shot, and the one metric that is reported of each.

The metrics are those of the tables in which these tasks are usually reported together (Pythia,
Mamba): the answer's log-probability is divided by its length (acc_norm) for HellaSwag and
ARC-challenge, and is taken as it is (acc) for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

NAME = "paper8"


@dataclass(frozen=True)
class PaperTask:
    """A task's name in lm-evaluation-harness, its metric, and where the harness defines it."""

    name: str
    metric: str
    folder: str  # under lm_eval/tasks: reading all of them takes ten seconds


_TASKS = (
    PaperTask("hellaswag", "acc_norm", "hellaswag"),
    PaperTask("arc_easy", "acc", "arc"),
    PaperTask("arc_challenge", "acc_norm", "arc"),
    PaperTask("piqa", "acc", "piqa"),
    PaperTask("winogrande", "acc", "winogrande"),
    PaperTask("boolq", "acc", "super_glue/boolq"),
    PaperTask("mmlu", "acc", "mmlu/default"),
    PaperTask("lambada_openai", "acc", "lambada"),
)
PAPER8 = {task.name: task for task in _TASKS}


def expand(names: str) -> list[str]:
    """The tasks in a list with commas, each once; paper8 stands for its eight."""
    wanted: list[str] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        wanted += PAPER8 if name == NAME else [name]
    if not wanted:
        raise ValueError(f"--tasks names no task, got {names!r}: name some, or {NAME}")
    return list(dict.fromkeys(wanted))
