"""Worker processes on this machine: started, watched, stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from dares.durable import writing
from dares.processes import cores
from dares.study.claims import Observer, died_with
from dares.study.plan import Plan
from dares.train.interrupt import watching

LOOK = 1.0  # seconds between two looks at the processes


def threads(jobs: int) -> int:
    """Of each of so many workers: OMP_NUM_THREADS if it is set, else the cores are shared out."""
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return max(1, cores() // jobs)


def run_workers(
    plan: Plan,
    jobs: int,
    *,
    cache: Path | None,
    reuse: Sequence[Path],
    watch: Callable[[], None],
) -> None:
    """Start so many workers and wait until all runs are settled; `watch` is called meanwhile.

    SIGTERM and Ctrl-C are handed on; workers save a checkpoint and end. One that is killed (out of
    memory, say) is replaced while there are runs with which not several have died.
    """
    logs = plan.folder / "workers"
    arguments = [sys.executable, "-m", "dares", "study", "worker", str(plan.folder)]
    arguments += ["--cache", str(cache)] if cache is not None else []
    for path in reuse:
        arguments += ["--reuse", str(path)]

    def start(index: int) -> subprocess.Popen[bytes]:
        path = logs / f"{index}.log"
        with writing(str(path)):
            logs.mkdir(exist_ok=True)
            with path.open("a") as log:
                own = _environment(index, jobs)
                return subprocess.Popen(arguments, env=own, stdout=log, stderr=log)

    observer = Observer()
    workers: list[subprocess.Popen[bytes]] = []
    with watching() as interrupt:
        asked = False
        try:
            for index in range(jobs):
                workers.append(start(index))
            codes: list[int | None] = [None]
            while None in codes:
                if interrupt and not asked:
                    asked = True
                    _stop(workers)
                codes = [worker.poll() for worker in workers]
                for index, code in enumerate(codes):
                    if code is None or code >= 0 or asked:
                        continue
                    if _has_hope(plan, observer, workers[index].pid):
                        workers[index], codes[index] = start(index), None
                watch()
                time.sleep(LOOK)
        except BaseException:  # nobody would watch them any more
            _stop(workers)
            raise
    if interrupt:
        raise ValueError(
            f"the study was stopped by {interrupt.name}: the same command goes on where it stopped"
        )
    watch()
    left = plan.open_runs()
    if left:
        ended = "; ".join(
            f"worker {index}, code {worker.returncode}: {_last_line(logs / f'{index}.log')}"
            for index, worker in enumerate(workers)
        )
        raise ValueError(
            f"all workers have ended and {len(left)} runs are not done, {left[0].name} among them "
            f"({ended}): mend what is wrong, and the same command goes on where it stopped"
        )


def _has_hope(plan: Plan, observer: Observer, pid: int) -> bool:
    """Was it with a run that a worker died, and are there others with which not several have?"""
    places = [plan.place(run) for run in plan.open_runs()]
    with_a_run = any(died_with(place, pid) for place in places)
    return with_a_run and not all(observer.is_deadly(place) for place in places)


def _stop(workers: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.send_signal(signal.SIGTERM)  # does nothing where it has ended


def _last_line(log: Path) -> str:
    lines = log.read_text().strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _environment(index: int, jobs: int) -> dict[str, str]:
    own = {**os.environ}
    count = str(threads(jobs))
    own |= {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    gpus = torch.cuda.device_count()
    if gpus:
        visible = own.get("CUDA_VISIBLE_DEVICES", "").split(",")
        own["CUDA_VISIBLE_DEVICES"] = (
            visible[index % gpus] if len(visible) >= gpus and visible[0] else str(index % gpus)
        )
    return own
