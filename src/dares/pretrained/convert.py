"""A checkpoint on disk -> a routed one on disk: planned, measured, there whole or not at all."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from dares.config import SchemeConfig
from dares.conversion import TOLERANCE
from dares.durable import PART, sync_folder
from dares.models import family_of
from dares.models.configs import to_routed_config
from dares.models.routed_model import scheme_for
from dares.pretrained.card import write_card
from dares.pretrained.identity import (
    Identity,
    compare_logits,
    mean_loss,
    rows_of_text,
    write_logits,
)
from dares.pretrained.loading import load_model, load_tokenizer
from dares.pretrained.remote_code import write_code
from dares.pretrained.shards import find_shards, write_shards
from dares.pretrained.source import Source
from dares.schemes import ResidualScheme

CARD, BASE_CARD = "README.md", "README.base.md"
# of the source's files: weights and code in other formats, and what is written anew
NOT_COPIED = (
    *(".safetensors", ".index.json", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack"),
    *(".onnx", ".gguf", ".py", ".part"),
)
NOT_COPIED_NAMES = ("config.json", CARD)
FOLDERS = ("additional_chat_templates",)


@dataclass(frozen=True)
class Plan:
    """What a conversion will do; no weights are needed to tell."""

    source: Source
    out: Path
    config: Any  # the routed model's
    depth: SchemeConfig
    scheme: ResidualScheme
    prefix: str  # of the scheme's tensors in the routed model
    base_parameters: int
    dtype: torch.dtype | None  # of the written weights; None keeps the source's
    allow_drift: bool

    @property
    def added_parameters(self) -> int:
        """The scheme's own."""
        return sum(parameter.numel() for parameter in self.scheme.parameters())

    @property
    def share(self) -> float:
        """Added parameters a hundred of the base's."""
        return 100 * self.added_parameters / self.base_parameters


def plan_conversion(
    source: Source,
    out: Path,
    depth: SchemeConfig | None,
    *,
    dtype: torch.dtype | None = None,
    allow_drift: bool = False,
) -> Plan:
    """Check everything that can be known without weights.

    depth        the scheme to convert to; None only where the checkpoint has one of its own
    dtype        of the written weights (routers stay float32); None keeps the source's
    allow_drift  convert also where the logits change
    """
    _check_out(out, source.path)
    if source.depth is not None:
        if depth is not None:
            raise ValueError(f"{source.name} was trained with a scheme of its own: name no other")
        depth = source.depth
    assert depth is not None
    family = family_of(source.config)
    config = to_routed_config(source.config, depth)
    config.architectures = [family.causal_lm.__name__]
    config.dtype = dtype or source.config.dtype
    spec = family.model.family_spec  # type: ignore[attr-defined]
    reason = spec.obstacle(config)
    if reason:
        raise ValueError(reason)
    scheme = scheme_for(config, spec)
    obstacle = scheme.identity_obstacle()
    if obstacle and source.depth is None and not allow_drift:
        raise ValueError(
            f"conversion would change the model: {obstacle} (--allow-drift converts anyway)"
        )
    with torch.device("meta"):
        base = family.base_causal_lm(source.config)
    return Plan(
        source=source,
        out=out,
        config=config,
        depth=depth,
        scheme=scheme,
        prefix=f"{base.base_model_prefix}.depth.",
        base_parameters=base.num_parameters(),
        dtype=dtype,
        allow_drift=allow_drift,
    )


def convert_checkpoint(
    plan: Plan,
    *,
    text: Path | None = None,
    with_code: bool = False,
    command: str,
    say: Callable[[str], None] = lambda message: None,
) -> Identity | float:
    """Carry a plan out; gives what was measured between the source and the result, both loaded.

    A checkpoint that was routed already has no model to compare with: its loss is given instead.

    text       what to measure on; None is Python's standard library
    with_code  see remote_code.py
    command    how the card says that the model was made
    """
    dtype = plan.dtype
    with _workshop(plan.out) as work:
        folder = plan.source.folder(work, dtype)
        shards = find_shards(folder)
        tokenizer = load_tokenizer(folder, plan.config.vocab_size)
        rows = rows_of_text(tokenizer, plan.config, text)
        routers = plan.source.routers(shards, plan.scheme)
        compares = plan.source.depth is None
        if compares:
            say(f"measuring {plan.source.name} on {rows.numel():,} tokens")
            write_logits(load_model(folder, dtype=dtype), rows, work / "logits")
            gc.collect()  # the next model comes into memory after this one has gone

        target = work / "model"
        target.mkdir()
        plan.config.save_pretrained(target)
        _copy_others(folder, target)
        named = {plan.prefix + name: tensor for name, tensor in routers.items()}
        files = write_shards(shards, named, target, keep=plan.source.belongs_to_base, dtype=dtype)

        say(f"{files} files of weights written, loading them back")
        model = load_model(target)
        measured = (
            compare_logits(model, rows, work / "logits") if compares else mean_loss(model, rows)
        )
        del model
        if isinstance(measured, Identity) and not plan.allow_drift:
            _refuse_drift(measured)
        if with_code:
            write_code(target)
        card = write_card(
            name=plan.out.resolve().name,
            source=plan.source.name,
            depth=plan.depth,
            added=plan.added_parameters,
            base=plan.base_parameters,
            measured=measured,
            command=command,
            with_code=with_code,
        )
        (target / CARD).write_text(card)
        os.rename(target, plan.out)
        sync_folder(plan.out.resolve().parent)
    return measured


def _check_out(out: Path, source: Path) -> None:
    inside, whole = out.resolve(), source.resolve()
    if inside == whole or whole in inside.parents:
        raise ValueError(f"OUT {out} lies in the source {source}: choose a folder outside of it")
    if out.is_file():
        raise ValueError(f"OUT {out} is a file: name a folder that is not there yet")
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"OUT {out} is there and not empty: name another, or remove it")


@contextmanager
def _workshop(out: Path) -> Iterator[Path]:
    """A folder beside OUT for what is not whole yet; gone at the end, however that comes."""
    work = out.with_name(out.name + PART)
    try:
        shutil.rmtree(work, ignore_errors=True)  # of a conversion that was killed
        work.mkdir(parents=True)
        yield work
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = getattr(error, "filename", None)
        reason = f"{reason}: {where}" if where else reason
        raise ValueError(f"{out} could not be made ({reason}); nothing was kept") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _copy_others(folder: Path, target: Path) -> None:
    """Tokenizer, generation config, chat template, licence: all that is not weights or code."""
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".")
        if path.is_dir() and path.name in FOLDERS:
            shutil.copytree(path, target / path.name)
        elif path.is_file() and not (
            hidden or path.name.endswith(NOT_COPIED) or path.name in NOT_COPIED_NAMES
        ):
            shutil.copyfile(path, target / path.name)
    if (folder / CARD).is_file():
        shutil.copyfile(folder / CARD, target / BASE_CARD)


def _refuse_drift(measured: Identity) -> None:
    if not measured.relative_difference <= TOLERANCE:
        raise ValueError(
            "conversion would change the model: the logits move by "
            f"{measured.relative_difference:.2g} relative to the largest, above {TOLERANCE:g} "
            "(--allow-drift converts anyway)"
        )
