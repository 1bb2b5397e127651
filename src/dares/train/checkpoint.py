"""Checkpoints that are whole or not there: sharded, written beside the training, checked by hash.

    RUN/checkpoints/step-00000100/      a whole one: its manifest fits its files
    RUN/checkpoints/step-00000200.part/ one that is being written, or was when the run died

Every rank writes its own share (torch.distributed.checkpoint), in the background; the folder gets
its name when all shares, the progress and the manifest are on the disk.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from dares.train.parallel import Ranks

MANIFEST, PROGRESS, PART = "manifest.json", "progress.json", ".part"
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


class Checkpoints:
    """The checkpoints of one run; the latest `keep` stay."""

    def __init__(self, folder: Path, ranks: Ranks, *, keep: int) -> None:
        self.folder, self.ranks, self.keep = folder, ranks, keep
        self._writing: tuple[Path, Future[dict[str, Any]]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    # -- writing -------------------------------------------------------------------------------

    def save(self, model: Any, optimizer: Any, progress: dict[str, Any]) -> None:
        """Begin to write; what is saved is copied now, and training may go on."""
        self.finish()
        target = self.folder / f"step-{progress['step']:08d}"
        if target.exists():
            return  # a run that was resumed and stopped again before its next step
        part = target.with_name(target.name + PART)
        state = _state(model, optimizer)
        problem = self._make_room(part, state) if self.ranks.first else None
        self._agree(problem)
        self.ranks.wait()
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

    def finish(self) -> Path | None:
        """Wait for what is being written, name it, and remove what is no longer kept."""
        if self._writing is None:
            return None
        target, future = self._writing
        self._writing = None
        problem = None
        try:
            files = future.result()
        except Exception as error:  # whatever the background met, the run must say so
            files, problem = {}, _disk_error(target, error)
        self._agree(problem)
        part = target.with_name(target.name + PART)
        everyone = self._gather(files)
        if self.ranks.first:
            write_whole(part / MANIFEST, json.dumps(everyone, indent=1) + "\n")
            os.rename(part, target)
            sync_folder(self.folder)
            self._prune()
        self.ranks.wait()
        return target

    def close(self) -> None:
        """Finish, and end the thread."""
        self.finish()
        self._thread.shutdown()

    def _make_room(self, part: Path, state: dict[str, Any]) -> str | None:
        """An empty folder to write in, or why there is none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left_over in self.folder.glob(f"*{PART}"):
            shutil.rmtree(left_over)
        needed, free = state_bytes(state), shutil.disk_usage(self.folder).free
        if free < needed * 1.05:
            return (
                f"a checkpoint needs {needed / 1e6:,.0f} MB and {self.folder} has "
                f"{free / 1e6:,.0f} MB left: make room and go on with --resume"
            )
        part.mkdir()
        return None

    def _agree(self, problem: str | None) -> None:
        """Every rank stops if one has a problem; the one that has it says so."""
        (troubled,) = self.ranks.sum(problem is not None)
        if problem is not None:
            raise ValueError(problem)
        if troubled:
            raise ValueError("another rank could not write its share of the checkpoint")

    def _gather(self, files: dict[str, Any]) -> dict[str, Any]:
        if self.ranks.mode == "none":
            return files
        shares: list[Any] = [None] * self.ranks.world
        torch.distributed.all_gather_object(shares, files, group=self.ranks.storage)
        return {name: entry for share in shares for name, entry in share.items()}

    def _prune(self) -> None:
        for path in sorted(self.folder.glob("step-????????"))[: -self.keep]:
            # renamed first: a checkpoint is never there in part under its own name
            gone = path.with_name(path.name + PART)
            os.rename(path, gone)
            shutil.rmtree(gone)

    # -- reading -------------------------------------------------------------------------------

    def newest(self, complain: Callable[[str], None]) -> Path | None:
        """The newest whole checkpoint; a damaged one is named and passed over."""
        for path in sorted(self.folder.glob("step-????????"), reverse=True):
            damage = find_damage(path)
            if damage is None:
                return path
            complain(f"checkpoint {path} is damaged ({damage}): using the one before it")
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
        return read_progress(path)


def read_progress(path: Path) -> dict[str, Any]:
    """What a checkpoint says of the run: step, counters, recipe."""
    return json.loads((path / PROGRESS).read_text())


def find_damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's files; None if they are what the manifest says."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        for name, expected in manifest.items():
            file = path / name
            if file.stat().st_size != expected["bytes"]:
                return f"{name} has {file.stat().st_size} bytes instead of {expected['bytes']}"
            if _hash(file) != expected["blake2b"]:
                return f"{name} has other contents than were written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return str(error)
    return None


def state_bytes(state: Any) -> int:
    """Bytes of this process's share of the tensors."""
    if isinstance(state, torch.Tensor):
        local = getattr(state, "_local_tensor", state)
        return local.numel() * local.element_size()
    if isinstance(state, dict):
        return sum(map(state_bytes, state.values()))
    return 0


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once: a reader sees the old or the new one, whole."""
    temporary = path.with_name(path.name + PART)
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names in a folder last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _state(model: Any, optimizer: Any) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer, options=OPTIONS)
    return {"model": model_state, "optimizer": optimizer_state}


def _seal(saved: Any, part: Path, progress: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """Wait for this rank's share; the manifest's entries for what it wrote."""
    saved.result()
    names = [path.name for path in part.glob(f"__{ranks.rank}_*")]
    if ranks.first:
        write_whole(part / PROGRESS, json.dumps(progress, indent=1) + "\n")
        names += [PROGRESS, ".metadata"]
    return {
        name: {"bytes": (part / name).stat().st_size, "blake2b": _hash(part / name)}
        for name in names
    }


def _hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _disk_error(target: Path, error: Exception) -> str:
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ or causes[-1].__context__:
        causes.append(causes[-1].__cause__ or causes[-1].__context__)  # type: ignore[arg-type]
    full = any(isinstance(e, OSError) and e.errno == errno.ENOSPC for e in causes)
    what = "the disk is full" if full else f"{type(error).__name__}: {error}"
    return (
        f"checkpoint {target.name} could not be written ({what}); those before it are whole: "
        "make room and go on with --resume"
    )
