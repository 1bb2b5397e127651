"""One piece of work at a time for each model, and a short queue before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

QUEUE = 4  # requests under way or waiting; a page has one at a time

T = TypeVar("T")


class BusyError(Exception):
    """The queue is full."""


class Desk:
    """Where a model's requests wait their turn."""

    def __init__(self) -> None:
        self._one = CapacityLimiter(1)
        self._here = 0

    async def run(self, work: Callable[[], T]) -> T:
        """What the work gives, done in a thread, after all that came before it."""
        if self._here >= QUEUE:
            raise BusyError(f"{QUEUE} requests wait for this model already: try again in a moment")
        self._here += 1
        try:
            return await to_thread.run_sync(work, limiter=self._one)
        finally:
            self._here -= 1
