"""A forward pass over rows of tokens, some of them padding, and the loss of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

Batch = Mapping[str, Tensor] | Tensor  # token ids [B, T], alone or with an attention_mask


class Rows(NamedTuple):
    """Token ids [B, T]; mask [B, T] is False at padding."""

    ids: Tensor
    mask: Tensor


class Pass(NamedTuple):
    """What a forward pass gave."""

    routing: tuple[Tensor | None, ...] | None
    loss_sums: Tensor  # [B], nats over the tokens that a row predicts
    predicted: Tensor  # [B], how many those are


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model in eval mode; every module's own mode comes back."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def rows_of(model: Any, batch: Batch) -> Rows:
    """A batch's rows, on the model's device."""
    ids = batch if isinstance(batch, Tensor) else batch["input_ids"]
    if ids.ndim != 2 or ids.is_floating_point() or ids.numel() == 0:
        raise ValueError(
            f"a batch must be token ids [rows, tokens], got {ids.dtype} {tuple(ids.shape)}"
        )
    mask = None if isinstance(batch, Tensor) else batch.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    if mask.shape != ids.shape:
        raise ValueError(
            f"attention_mask must have the shape of input_ids {tuple(ids.shape)}, "
            f"got {tuple(mask.shape)}"
        )
    device = model.get_input_embeddings().weight.device
    return Rows(ids.to(device), mask.to(device).bool())


def run(model: Any, rows: Rows, *, record: bool = False) -> Pass:
    """One forward pass; record keeps the routing weights."""
    ids, mask = rows
    extra: dict[str, Tensor] = {}
    if not bool(mask.all()):
        # a token's place is counted from its row's first token, wherever the padding is
        extra["attention_mask"] = mask.long()
        extra["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    output = model(input_ids=ids, use_cache=False, output_routing=record, **extra)
    return Pass(output.routing, *row_losses(output.logits, rows))


def row_losses(logits: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Each row's summed loss (float64) and how many tokens it predicts.

    A token is predicted if it and the one before it are no padding.
    """
    ids, mask = rows
    wanted = mask[:, 1:] & mask[:, :-1]
    # row by row: a second copy of all logits at once would cost more than the layers of a small
    # model with a large vocabulary
    sums = [_losses(*each) for each in zip(logits, ids, wanted, strict=True)]
    return torch.stack(sums), wanted.sum(-1)


def _losses(logits: Tensor, ids: Tensor, wanted: Tensor) -> Tensor:
    exact = logits[:-1].to(torch.promote_types(logits.dtype, torch.float32))
    losses = torch.nn.functional.cross_entropy(exact, ids[1:], reduction="none")
    return torch.where(wanted, losses.double(), 0.0).sum()
