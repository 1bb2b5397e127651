"""What a run writes down: metrics.jsonl always, TensorBoard and Weights & Biases if asked for."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from dares.durable import write_whole, writing
from dares.names import unknown_name

FILE = "metrics.jsonl"


class Metrics:
    """Lines of a run: {"step": ..., "loss": ...}, {"step": ..., "validation_loss": ...}."""

    def __init__(
        self, folder: Path, trackers: Iterable[str], settings: dict[str, Any], *, step: int
    ) -> None:
        """Forget what came after that step, and at step 0 all: a resumed run writes it again."""
        self.path = folder / FILE
        lines = [line for line in read_metrics(self.path) if step and line["step"] <= step]
        with writing(str(self.path), training=True):
            write_whole(self.path, "".join(json.dumps(line) + "\n" for line in lines))
        self._trackers = [KINDS[name](folder, settings, step) for name in trackers]

    def write(self, line: dict[str, Any]) -> None:
        """Append a line; it is on the disk when this returns."""
        with writing(str(self.path), training=True), self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        for tracker in self._trackers:
            tracker.write(line)

    def close(self) -> None:
        """Let the trackers finish."""
        for tracker in self._trackers:
            tracker.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines there are; a last one that was cut off is left out."""
    lines = []
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def validation_losses(lines: Iterable[dict[str, Any]]) -> list[float]:
    """Every validation loss of a run, in order."""
    return [line["validation_loss"] for line in lines if "validation_loss" in line]


def _scalars(line: dict[str, Any]) -> dict[str, float]:
    """What trackers draw: every number, one a site for lists, without those that are not there."""
    numbers: dict[str, float | None] = {}
    for name, value in line.items():
        if isinstance(value, list):
            numbers |= {f"{name}/{index}": each for index, each in enumerate(value)}
        elif name != "step":
            numbers[name] = value
    return {name: number for name, number in numbers.items() if number is not None}


class _TensorBoard:
    def __init__(self, folder: Path, settings: dict[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # what a stopped run wrote after its last checkpoint is hidden
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        self._writer.add_text("recipe", f"```json\n{json.dumps(settings, indent=1)}\n```")

    def write(self, line: dict[str, Any]) -> None:
        for name, value in _scalars(line).items():
            self._writer.add_scalar(name, value, line["step"])

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    def __init__(self, folder: Path, settings: dict[str, Any], step: int) -> None:
        import wandb

        # kept, so that a resumed run goes on in the same place
        kept = folder / "wandb-id.txt"
        if not kept.exists():
            write_whole(kept, secrets.token_hex(4))
        self._run = wandb.init(
            project="dares",
            name=folder.name,
            id=kept.read_text(),
            dir=str(folder),
            config=settings,
            resume="allow",
        )

    def write(self, line: dict[str, Any]) -> None:
        self._run.log(_scalars(line), step=line["step"])

    def close(self) -> None:
        self._run.finish()


KINDS: dict[str, Any] = {"tensorboard": _TensorBoard, "wandb": _WeightsAndBiases}


def check_trackers(names: Iterable[str]) -> None:
    """An error if there is no such tracker, or its package is missing."""
    for name in names:
        if name not in KINDS:
            raise ValueError(unknown_name("--track", name, KINDS))
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(f"--track {name} needs a package: pip install {name}") from error
