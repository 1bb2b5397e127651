"""Runs that another study has done already: copied, not trained again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dares.durable import writing
from dares.study.claims import CLAIMS
from dares.study.plan import RESULT, Plan, Run
from dares.train.folder import differences


def adopt(plan: Plan, run: Run, others: Sequence[Plan], data: str) -> Path | None:
    """Copy the same run from another study, if one has finished it; where it came from.

    The same is: every setting that makes a difference to what is learned, seed and rate included,
    on the same text (`data` is the key of its rows).
    """
    recipe = plan.recipe(run)
    for other in others:
        for theirs in other.tuning if run.rate is not None else other.runs:
            if not other.is_done(theirs) or differences(other.recipe(theirs), recipe):
                continue
            result = other.result(theirs)
            if result["data"] != data:
                continue
            source, target = other.place(theirs), plan.place(run)
            with writing(str(target)):
                shutil.copytree(
                    source,
                    target,
                    dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns(CLAIMS, RESULT),
                )
            plan.finish(run, result)  # last: it makes the run done
            return source
    return None
