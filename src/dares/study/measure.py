"""What is measured at the end of a run: its losses, how it routes, and whether that is used."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from dares.data.loader import IGNORED, batch_of
from dares.data.rows import PackedData
from dares.quiet import quiet
from dares.routing.passes import Batch
from dares.routing.probes import measure, plan_probes
from dares.routing.record import record
from dares.routing.sites import scheme_of
from dares.train.finish import MODEL
from dares.train.metrics import FILE, read_metrics
from dares.train.parallel import Ranks
from dares.train.recipe import Recipe

PROBES = ("drop_all", "uniform", "mean")  # of the whole model: a few passes each
PROBED_ROWS = 16
ROWS_A_PASS = 4


def losses(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """What the metrics of a finished run tell; a run that diverged is an error."""
    lines = read_metrics(folder / FILE)
    curve = [[line["step"], line["validation_loss"]] for line in lines if "validation_loss" in line]
    last = curve[-1][1]
    if not math.isfinite(last):
        raise ValueError(f"the run ended with a validation loss of {last}: try a lower optim.lr")
    return {
        "lr": recipe.optim.lr,
        "validation_loss": last,
        "curve": [point for point in curve if math.isfinite(point[1])],
        "tokens_per_second": statistics.median(
            line["tokens_per_second"] for line in lines if "tokens_per_second" in line
        ),
        "skipped": max((line["skipped"] for line in lines if "skipped" in line), default=0),
    }


def routing(folder: Path, data: PackedData, ranks: Ranks) -> dict[str, Any]:
    """How the trained model routes on validation rows, and what probes do to its loss there."""
    from transformers import AutoModelForCausalLM

    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(folder / MODEL)
    model.to(ranks.device)
    scheme = scheme_of(model)
    count = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "scheme_parameters": sum(parameter.numel() for parameter in scheme.parameters()),
    }
    if not any(scheme.source_labels(site) for site in range(scheme.read_sites)):
        return {**count, "sites": [], "probes": {}}
    batches = validation_batches(data)
    recording = record(model, batches, watch=False)
    planned = plan_probes(scheme, recording.mean_weights)
    chosen = [probe for probe in planned if probe.kind in PROBES]
    found = measure(model, batches, chosen)
    return {
        **count,
        "sites": [
            {
                "depth": each.site.depth,
                "kind": each.site.kind,
                "sources": each.sources,
                "largest": each.largest,
                "normalised_entropy": each.normalised_entropy,
            }
            for each in recording.sites
        ],
        "probes": {effect.kind: effect.difference for effect in found.effects},
    }


def validation_batches(data: PackedData) -> list[Batch]:
    """The first validation rows, a few at a time."""
    rows = data.validation
    wanted = list(range(min(PROBED_ROWS, len(rows))))
    batches: list[Batch] = []
    for start in range(0, len(wanted), ROWS_A_PASS):
        batch = batch_of(rows, wanted[start : start + ROWS_A_PASS])
        mask = (batch["labels"] != IGNORED).long()
        batches.append({"input_ids": batch["input_ids"], "attention_mask": mask})
    return batches
