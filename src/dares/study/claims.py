"""Which worker has which run: lock files that only one can make, kept warm by a heartbeat.

    RUN/claims/0001   {"place": ..., "pid": ..., "free": false}

The newest claim counts. To take a run over is to make the next number, which the file system lets
one process do alone (O_EXCL). Numbers are never used twice, so that a worker that was slow to
decide cannot take what another has taken meanwhile.

A claim is free when its owner gave it back, when its process is dead (on the same machine), or
when its time stamp has not moved for STALE seconds of the observer's own clock. Clocks of other
machines, and the age of a time stamp, are never asked: over NFS they can be minutes off.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from dares.durable import write_whole, writing
from dares.processes import alive, place

CLAIMS = "claims"
BEAT = 20.0  # seconds between two beats
STALE = 300.0  # seconds: generous, since NFS may show a time stamp a minute late
LOST = 75  # exit code of a worker whose run was taken over
DEATHS = 3  # workers that died with a run before others go first: fewer may be bad luck


class Observer:
    """What a process has seen of others' claims, and since when."""

    def __init__(self, stale: float = STALE) -> None:
        self.stale = stale
        self._seen: dict[Path, tuple[int, float]] = {}  # time stamp, and when it was new to us

    def is_held(self, run: Path) -> bool:
        """Has a live worker this run?"""
        newest = _newest(run)
        return newest is not None and self._is_warm(newest)

    def is_deadly(self, run: Path) -> bool:
        """Have several workers died with this run? Out of memory, say."""
        lost = sum(not _read(claim)["free"] for claim in _claims(run))
        return lost >= DEATHS and lost - self.is_held(run) >= DEATHS

    def take(self, run: Path, *, beat: float = BEAT) -> Claim | None:
        """Claim a run; None if another worker has it, or was faster."""
        newest = _newest(run)
        if newest is not None and self._is_warm(newest):
            return None
        # the number after the one that was looked at: whoever was faster has made it already
        number = 1 if newest is None else int(newest.name) + 1
        path = run / CLAIMS / f"{number:04d}"
        with writing(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                return None
            with os.fdopen(descriptor, "w") as file:
                file.write(_text(free=False))
        return Claim(path, beat)

    def _is_warm(self, claim: Path) -> bool:
        stamp, told = claim.stat().st_mtime_ns, _read(claim)
        if told["free"] or (told["place"] == place() and not alive(told["pid"])):
            return False
        now = time.monotonic()
        before = self._seen.get(claim)
        if before is None or before[0] != stamp:
            self._seen[claim] = (stamp, now)
            return True
        return now - before[1] < self.stale


class Claim:
    """A run that is this process's, for as long as the block lasts."""

    def __init__(self, path: Path, beat: float) -> None:
        self.path, self._beat = path, beat
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_warm, daemon=True)

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
        with writing(str(self.path)):
            write_whole(self.path, _text(free=True))

    def _keep_warm(self) -> None:
        while not self._end.wait(self._beat):
            # a file system that does not answer may do so at the next beat
            with suppress(OSError):
                if self._is_lost():
                    # this process slept longer than STALE: another has the run, and two must not
                    # write into one folder, so there is nothing left to do but to end at once
                    said = f"{self.path} was taken over: this worker ends"
                    print(said, file=sys.stderr, flush=True)
                    os._exit(LOST)
                os.utime(self.path)

    def _is_lost(self) -> bool:
        return _newest(self.path.parent.parent) != self.path


def died_with(run: Path, pid: int) -> bool:
    """Did a process of this machine that has ended leave a claim on the run behind?"""
    left = {"place": place(), "pid": pid, "free": False}
    return any(_read(claim) == left for claim in _claims(run))


def _newest(run: Path) -> Path | None:
    """The claim that counts."""
    return max(_claims(run), key=lambda claim: int(claim.name), default=None)


def _claims(run: Path) -> list[Path]:
    """All there have been. A name with more than digits is a file that is being replaced."""
    try:
        names = os.listdir(run / CLAIMS)  # unlike a glob it says when it could not look
    except FileNotFoundError:
        return []
    return [run / CLAIMS / name for name in names if name.isdigit()]


def _text(*, free: bool) -> str:
    return json.dumps({"place": place(), "pid": os.getpid(), "free": free}) + "\n"


def _read(path: Path) -> dict[str, Any]:
    """What a claim says; one that is just being written says that it is held."""
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        told = {"place": None, "pid": None, "free": False}
    return told
