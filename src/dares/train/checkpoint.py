"""Checkpoints that are whole or not there: sharded, written beside the training, checked by hash.

    RUN/checkpoints/step-00000100/          a whole one: its manifest fits its files
    RUN/checkpoints/step-00000200.part/     one that is being written, or was when the run died
    RUN/checkpoints/step-00000300.damaged/  one whose files are not what was written, set aside

Every rank writes its own share (torch.distributed.checkpoint), in the background; the folder gets
its name when all shares, the progress and the manifest are on the disk. Parameters that do not
learn are left out: a fine-tuning run finds them in the model that it starts from.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from dares.durable import PART, not_written, sync_folder, write_whole
from dares.train.manifest import MANIFEST, METADATA, PROGRESS, describe_files, find_damage
from dares.train.parallel import Ranks, inner

DAMAGED = ".damaged"
NAMES = "step-????????"
# not strict: what is frozen is left out; all that is not is asked for by name
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True, strict=False)
# CheckpointException, torch's own, is no Exception
ERRORS = (Exception, CheckpointException)


class Checkpoints:
    """The checkpoints of one run; the latest `keep` stay."""

    def __init__(self, folder: Path, ranks: Ranks, *, keep: int) -> None:
        self.folder, self.ranks, self.keep = folder, ranks, keep
        self._writing: tuple[Path, Future[dict[str, Any]]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        if ranks.mode == "none":
            # torch warns that it assumes one process; it is one
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")

    # -- writing -------------------------------------------------------------------------------

    def save(self, model: Any, optimizer: Any, progress: dict[str, Any]) -> None:
        """Begin to write; what is saved is copied now, and training may go on."""
        self.finish()
        target = self.folder / f"step-{progress['step']:08d}"
        part = target.with_name(target.name + PART)
        state = _state(model, optimizer)
        self.ranks.agree(self._make_room(part, state) if self.ranks.first else None)
        writer = dcp.FileSystemWriter(part, sync_files=True, overwrite=True)
        saved = dcp.async_save(
            state,
            storage_writer=writer,
            process_group=self.ranks.storage,
            no_dist=self.ranks.mode == "none",
        )
        self._writing = (target, self._thread.submit(_seal, saved, part, progress, self.ranks))

    def ready(self) -> bool:
        """Is a checkpoint written, and waits for its name?"""
        return self._writing is not None and self._writing[1].done()

    def finish(self) -> None:
        """Wait for what is being written, name it, and remove what is no longer kept."""
        if self._writing is None:
            return
        target, future = self._writing
        self._writing = None
        files: dict[str, Any] = {}
        problem = None
        try:
            files = future.result()
        except ERRORS as error:
            problem = not_written(f"checkpoint {target.name}", error, training=True)
        self.ranks.agree(problem)
        shares = self.ranks.gather(files)
        if self.ranks.first:
            try:
                self._name(target, {name: file for share in shares for name, file in share.items()})
            except OSError as error:
                problem = not_written(f"checkpoint {target.name}", error, training=True)
        self.ranks.agree(problem)

    def close(self) -> None:
        """Finish, and end the thread."""
        try:
            self.finish()
        finally:
            self._thread.shutdown()

    def _make_room(self, part: Path, state: dict[str, Any]) -> str | None:
        """An empty folder to write in, or why there is none."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clear()
            needed, free = state_bytes(state), shutil.disk_usage(self.folder).free
            if free < needed * 1.05:
                return (
                    f"a checkpoint needs {needed / 1e6:,.2f} MB and {self.folder} has "
                    f"{free / 1e6:,.2f} MB left: make room and go on with --resume"
                )
            part.mkdir()
        except OSError as error:
            return not_written(f"checkpoint {part.stem}", error, training=True)
        return None

    def _clear(self) -> None:
        """Remove what a run that died was writing, or removing."""
        for left_over in self.folder.glob(f"*{PART}"):
            shutil.rmtree(left_over)

    def _name(self, target: Path, manifest: dict[str, Any]) -> None:
        part = target.with_name(target.name + PART)
        write_whole(part / MANIFEST, json.dumps(manifest, indent=1) + "\n")
        os.rename(part, target)
        sync_folder(self.folder)
        for old in sorted(self.folder.glob(NAMES))[: -self.keep]:
            # renamed first: a checkpoint is never there in part under its own name
            gone = old.with_name(old.name + PART)
            os.rename(old, gone)
            shutil.rmtree(gone)

    # -- reading -------------------------------------------------------------------------------

    def newest(self, complain: Callable[[str], None]) -> Path | None:
        """The newest whole checkpoint; a damaged one is named and set aside, not to be counted."""
        self._clear()
        for path in sorted(self.folder.glob(NAMES), reverse=True):
            damage = find_damage(path)
            if damage is None:
                return path
            aside = path.with_name(path.name + DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
            complain(f"checkpoint {path.name} is damaged ({damage}): using the one before it")
        return None

    def load(self, path: Path, model: Any, optimizer: Any) -> dict[str, Any]:
        """Set model and optimizer to a checkpoint, whoever wrote it; returns its progress."""
        state = _state(model, optimizer)
        dcp.load(
            state,
            storage_reader=dcp.FileSystemReader(path),
            process_group=self.ranks.storage,
            no_dist=self.ranks.mode == "none",
        )
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=OPTIONS,
        )
        progress: dict[str, Any] = json.loads((path / PROGRESS).read_text())
        return progress


def state_bytes(state: Any) -> int:
    """Bytes of the tensors, those of other ranks with them: all go to one disk."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, dict):
        return sum(map(state_bytes, state.values()))
    return 0


def _state(model: Any, optimizer: Any) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer, options=OPTIONS)
    # torch's own option for this keeps the second name of a tied weight
    frozen = {
        name
        for name, tensor in inner(model).state_dict(keep_vars=True).items()
        if isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    }
    learned = {name: tensor for name, tensor in model_state.items() if name not in frozen}
    return {"model": learned, "optimizer": optimizer_state}


def _seal(saved: Any, part: Path, progress: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Wait for this rank's share; the manifest's entries for what it wrote."""
    saved.result()
    names = [path.name for path in part.glob(f"__{ranks.rank}_*")]
    if ranks.first:
        write_whole(part / PROGRESS, json.dumps(progress, indent=1) + "\n")
        names += [PROGRESS, METADATA]
    return describe_files(part, names)
