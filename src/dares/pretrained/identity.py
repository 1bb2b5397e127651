"""Does the converted model still say the same? Measured on text, each model loaded from disk.

One model is in memory at a time: the first one's logits wait on the disk for the second one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from dares.data.documents import Tally, find_corpus

TOKENS = 2048
LEAST = 2000  # tokens: fewer say too little
ROW = 256  # tokens a row: its logits over a large vocabulary are some 150 MB
PIECE = 32  # tokens whose logits are compared at once, in float64


@dataclass(frozen=True)
class Identity:
    """What conversion did to a model.

    difference           largest |logit - logit before|
    relative_difference  the same over the largest |logit before|
    kl                   mean over the tokens of KL(before || after), in nats
    """

    tokens: int
    difference: float
    relative_difference: float
    loss_before: float
    loss_after: float
    kl: float


def rows_of_text(tokenizer: Any, config: Any, text: Path | None) -> Tensor:
    """The first tokens of a file or folder of text, or of Python's standard library: [rows, T]."""
    length = min(ROW, getattr(config, "max_position_embeddings", ROW))
    wanted = -(-TOKENS // length) * length
    tally, ids = Tally(), []
    for document in find_corpus([] if text is None else [text]).documents(tally):
        if tally.replaced and text is not None:
            raise ValueError(
                f"{text} is not UTF-8 text: convert it first (iconv -f ENCODING -t UTF-8)"
            )
        ids += tokenizer(document, verbose=False)["input_ids"]
        if len(ids) >= wanted:
            break
    usable = min(len(ids) // length * length, wanted)
    if usable < LEAST:
        raise ValueError(
            f"{text} gives {len(ids):,} tokens, {usable:,} of them in whole rows of {length}: "
            f"identity is measured on at least {LEAST:,}, so use a longer text"
        )
    return torch.tensor(ids[:usable]).view(-1, length)


def write_logits(model: Any, rows: Tensor, folder: Path) -> None:
    """Lay down a model's logits, a file a row."""
    folder.mkdir()
    for number, logits in enumerate(_logits(model, rows)):
        if not logits.isfinite().all():
            raise ValueError(
                "the model gives logits that are not finite, so identity cannot be measured: "
                "is the checkpoint whole?"
            )
        save_file({"logits": logits}, _file(folder, number))


def compare_logits(model: Any, rows: Tensor, folder: Path) -> Identity:
    """Another model's logits against those that `write_logits` laid down."""
    difference = largest = divergence = 0.0
    losses = {"before": 0.0, "after": 0.0}
    for number, after in enumerate(_logits(model, rows)):
        before = load_file(_file(folder, number))["logits"]
        difference = max(difference, (after.float() - before.float()).abs().max().item())
        largest = max(largest, before.abs().max().item())
        for ours, theirs in zip(after.split(PIECE), before.split(PIECE), strict=True):
            log_p, log_q = theirs.double().log_softmax(-1), ours.double().log_softmax(-1)
            divergence += (log_p.exp() * (log_p - log_q)).sum().item()
        losses["before"] += _loss(before, rows[number])
        losses["after"] += _loss(after, rows[number])
    predicted = rows.shape[0] * (rows.shape[1] - 1)
    return Identity(
        tokens=rows.numel(),
        difference=difference,
        relative_difference=difference / max(largest, 1e-30),
        loss_before=losses["before"] / predicted,
        loss_after=losses["after"] / predicted,
        kl=divergence / rows.numel(),
    )


def mean_loss(model: Any, rows: Tensor) -> float:
    """The model's mean loss on the next tokens of the rows."""
    total = sum(_loss(logits, row) for logits, row in zip(_logits(model, rows), rows, strict=True))
    return total / (rows.shape[0] * (rows.shape[1] - 1))


@torch.no_grad()
def _logits(model: Any, rows: Tensor) -> Iterator[Tensor]:
    for row in rows:
        yield model(input_ids=row[None], use_cache=False).logits[0]


def _loss(logits: Tensor, row: Tensor) -> float:
    """The sum over a row's next tokens."""
    return cross_entropy(logits[:-1].float(), row[1:], reduction="sum").item()


def _file(folder: Path, number: int) -> Path:
    return folder / f"row-{number}.safetensors"
