"""Processes: the cores they may use, where their numbers mean something, which still run."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def place() -> str:
    """Where a process number means something: a machine, and its namespace of processes."""
    namespace = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()} {os.readlink(namespace) if namespace.exists() else ''}"


def alive(pid: int) -> bool:
    """Is there a process of that number in this place?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # someone else's, and there
    return True
