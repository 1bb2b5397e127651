"""What a run writes down: metrics.jsonl always, TensorBoard and Weights & Biases if asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dares.names import unknown_name
from dares.train.checkpoint import write_whole

FILE = "metrics.jsonl"
TRACKERS = ("tensorboard", "wandb")


class Metrics:
    """Lines of a run: {"step": ..., "loss": ...}, {"step": ..., "validation_loss": ...}."""

    def __init__(self, folder: Path, trackers: Iterable[str], settings: dict[str, Any]) -> None:
        self.path = folder / FILE
        self._trackers = [_open_tracker(name, folder, settings) for name in trackers]

    def rewind(self, step: int) -> None:
        """Forget what came after a checkpoint: a resumed run will write it again."""
        lines = [line for line in read_metrics(self.path) if line["step"] <= step]
        write_whole(self.path, "".join(json.dumps(line) + "\n" for line in lines))

    def write(self, line: dict[str, Any]) -> None:
        """Append a line; it is on the disk when this returns."""
        with self.path.open("a") as file:
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


class _TensorBoard:
    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("recipe", f"```json\n{json.dumps(settings, indent=1)}\n```")

    def write(self, line: dict[str, Any]) -> None:
        for name, value in line.items():
            if name != "step" and value is not None:
                self._writer.add_scalar(name, value, line["step"])

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project="dares", name=folder.name, dir=str(folder), config=settings, resume="allow"
        )

    def write(self, line: dict[str, Any]) -> None:
        values = {name: value for name, value in line.items() if name != "step"}
        self._run.log(values, step=line["step"])

    def close(self) -> None:
        self._run.finish()


def _open_tracker(name: str, folder: Path, settings: dict[str, Any]) -> Any:
    kinds = {"tensorboard": _TensorBoard, "wandb": _WeightsAndBiases}
    if name not in kinds:
        raise ValueError(unknown_name("--track", name, TRACKERS))
    try:
        return kinds[name](folder, settings)
    except ModuleNotFoundError as error:
        raise ValueError(f"--track {name} needs a package: pip install {name}") from error
