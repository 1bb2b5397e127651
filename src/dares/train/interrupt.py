"""SIGTERM and Ctrl-C: finish the step, then stop. A second one stops at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# seconds in which a signal is the first one again: a Ctrl-C reaches a rank from the terminal, and
# once more from torchrun
REPEATED = 2.0


class Interrupt:
    """Has someone asked the run to stop?"""

    def __init__(self) -> None:
        self.name: str | None = None
        self.since = 0.0

    def __bool__(self) -> bool:
        return self.name is not None


_watched: list[Interrupt] = []  # of the block that the main thread is in


@contextmanager
def watching() -> Iterator[Interrupt]:
    """Note the first signal instead of dying of it; of blocks within each other all see it."""
    if threading.current_thread() is not threading.main_thread():
        yield Interrupt()  # signals belong to the main thread: whoever runs it stops the run
        return
    if _watched:
        yield _watched[0]
        return
    interrupt = Interrupt()

    def note(number: int, _: FrameType | None) -> None:
        if interrupt.name is None:
            interrupt.name, interrupt.since = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - interrupt.since > REPEATED:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGTERM, signal.SIGINT)}
    _watched.append(interrupt)
    try:
        yield interrupt
    finally:
        _watched.clear()
        for each, handler in before.items():
            signal.signal(each, handler)
