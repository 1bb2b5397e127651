"""How far a training step raises a process's memory, measured in a process of its own.

Only a fresh process shows it: in a used one the allocator hands out what it has kept.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from dares.bench.workloads import Shape, loss, model, random_ids

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# glibc's own default, which it gives up once large memory is freed: then what was freed before the
# step hides a part of it, and two equal runs differ by a quarter
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "131072"}


def check_peak() -> None:
    """Refuse, in the user's words, where the system does not tell a process's peak."""
    if not CLEAR.exists():
        raise ValueError(
            f"peak memory is read from /proc, which this system ({sys.platform}) does not have: "
            "pass --no-peak"
        )


def peak_growth(shape: Shape, scheme: str) -> int:
    """Bytes that forward and backward add to the resident memory at their peak."""
    done = subprocess.run(
        [sys.executable, "-m", "dares.bench.peak", json.dumps(asdict(shape)), scheme],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it may not fit into memory, try fewer tokens"]
        raise ValueError(
            f"the process that measures {scheme} with {shape.layers} layers ended with code "
            f"{done.returncode}: {lines[-1]}"
        )
    return int(done.stdout)


def measure(shape: Shape, scheme: str) -> int:
    """peak_growth, of this process."""
    network, ids = model(shape, scheme).train(), random_ids(shape)
    # Libraries that load themselves at the first use, and the parameters' gradients, are there
    # before the step that counts, as they are in every step but the first.
    loss(network, ids[:1, :2]).backward()
    CLEAR.write_text("5")  # the peak begins anew
    before = _kilobytes("VmRSS")
    loss(network, ids).backward()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    print(measure(Shape(**json.loads(sys.argv[1])), sys.argv[2]))
