"""Results of several models side by side: the same units in the same order, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dares.evals.bootstrap import Array

ENOUGH_DOCUMENTS = 30  # with fewer, the pieces of the documents are resampled
_BYTES, _TOKENS, _NATS = range(3)  # the columns of a document's sums


@dataclass(frozen=True)
class Paired:
    """One task or text of all models: a model's value is sum(sums) / sum(weights) over units."""

    name: str
    metric: str
    unit: str  # items, documents, pieces
    higher_is_better: bool
    sums: Array  # [units, models]
    weights: Array  # [units], the same for all models

    @property
    def values(self) -> Array:
        """Each model's value."""
        return self.sums.sum(0) / self.weights.sum()


def pair(name: str, labels: Sequence[str], entries: Sequence[dict[str, Any]]) -> Paired:
    """The results of one task or text, unit by unit; an error where they do not fit together."""
    first = entries[0]
    for label, entry in zip(labels[1:], entries[1:], strict=True):
        reason = _obstacle(first, entry)
        if reason:
            raise ValueError(
                f"{name} of {labels[0]} and of {label} cannot be paired: {reason}; "
                "evaluate both alike"
            )
    return _pair_tasks(name, entries) if first["kind"] == "task" else _pair_texts(name, entries)


def _obstacle(first: dict[str, Any], other: dict[str, Any]) -> str | None:
    """Why two results of one name are not of the same units, in the same setting."""
    if first["kind"] != other["kind"]:
        return f"one is a {first['kind']}, the other a {other['kind']}"
    for setting in ("limit", "text", "data", "window", "stride", "shots", "seed"):
        one, two = first["settings"].get(setting), other["settings"].get(setting)
        if one != two:
            return f"{setting} {one} against {two}"
    if _identities(first) != _identities(other):
        return "they are of other items"
    if first.get("metric") != other.get("metric"):
        return f"metric {first['metric']} against {other['metric']}"
    return None


def _identities(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    if entry["kind"] == "task":
        return [(item["id"], item["hash"]) for item in entry["items"]]
    return [(document["hash"],) for document in entry["documents"]]


def _pair_tasks(name: str, entries: Sequence[dict[str, Any]]) -> Paired:
    metric = entries[0]["metric"]
    columns = [[item["values"][metric] for item in entry["items"]] for entry in entries]
    sums = np.array(columns, dtype=np.float64).T
    higher = entries[0]["higher_is_better"]
    return Paired(name, metric, "items", higher, sums, np.ones(len(sums)))


def _pair_texts(name: str, entries: Sequence[dict[str, Any]]) -> Paired:
    """Nats per token where all models have the same tokens, else bits per byte."""
    unit = "documents" if len(entries[0]["documents"]) >= ENOUGH_DOCUMENTS else "pieces"
    tables = [_table(entry, unit) for entry in entries]
    sums = np.stack([table[:, _NATS] for table in tables], axis=1)
    tokens = tables[0][:, _TOKENS]
    if all(np.array_equal(table[:, _TOKENS], tokens) for table in tables):
        return Paired(name, "nats per token", unit, False, sums, tokens)
    if any(entry["bits_per_byte"] is None for entry in entries):
        raise ValueError(
            f"{name} cannot be paired: the tokenizers differ, and one has neither BOS nor EOS to "
            "begin a document with, so that its bits per byte are not known"
        )
    return Paired(name, "bits per byte", unit, False, sums / math.log(2), tables[0][:, _BYTES])


def _table(entry: dict[str, Any], unit: str) -> Array:
    """Bytes, tokens and nats of each unit.  [units, 3]"""
    rows = [
        row
        for document in entry["documents"]
        for row in (
            [[document["bytes"], document["tokens"], document["nats"]]]
            if unit == "documents"
            else document["pieces"]
        )
    ]
    return np.array(rows, dtype=np.float64)
