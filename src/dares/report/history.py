"""What a run's metrics tell of its routing over training steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dares.train.metrics import FILE, read_metrics

BY_SITE = ("site_largest_weight", "site_entropy")  # lists, one entry a site
MEAN = ("largest_weight", "routing_entropy")  # of runs that did not write down each site


def read_history(name: str) -> dict[str, Any] | None:
    """Steps, and each site's sharpness at each of them; None where the folder tells of none."""
    folder = Path(name).expanduser()
    if folder.name == "model" and not (folder / FILE).exists():
        folder = folder.parent
    lines = read_metrics(folder / FILE)
    for keys, by_site in ((BY_SITE, True), (MEAN, False)):
        told = [line for line in lines if all(line.get(key) is not None for key in keys)]
        if told:
            largest, entropy = (
                [line[key] if by_site else [line[key]] for line in told] for key in keys
            )
            return {
                "by_site": by_site,
                "steps": [line["step"] for line in told],
                "largest": largest,
                "entropy": entropy,
            }
    return None
