"""Log-probabilities of tokens in context: the one place where a model is run.

Rows of like length share a batch, padded on the right, where causal attention never looks; logits
are made only from the first position that is asked for; rows that differ in their last token alone
(the choices "A", "B", "C", "D") are one row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

AUTO_TOKENS = {"cpu": 2048, "cuda": 32_768}  # a batch, to begin with: more is no faster on a CPU

Advance = Callable[[int], None]  # told how many more passages are done


@dataclass(frozen=True)
class Passage:
    """Tokens of which the last `predicted` are to be scored, each after all before it."""

    ids: NDArray[np.int64]
    predicted: int


@dataclass(frozen=True)
class Score:
    """Of each predicted token: its log-probability, and whether no other is likelier."""

    log_probabilities: NDArray[np.float64]
    likeliest: NDArray[np.bool_]


@dataclass
class _Row:
    """What goes into the model once, and the passages that it answers."""

    shown: NDArray[np.int64]
    passages: list[int]
    predicted: int


class Scorer:
    """Scores passages with a model, in batches of `rows` rows; None: as many as fit."""

    def __init__(self, model: Any, rows: int | None = None) -> None:
        self._model, self._rows = model, rows
        self._tokens = AUTO_TOKENS.get(model.device.type, AUTO_TOKENS["cuda"])
        # families without the argument give all logits: the same numbers, with more work
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters

    def score(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> list[Score]:
        """A score for every passage, in their order."""
        scores = _empty_scores(passages)
        rows = _rows(passages)
        while rows:
            batch = rows[: self._fitting(rows)]
            try:
                _fill(scores, batch, *self._logits(batch), passages)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                self._shrink(batch)
                continue
            advance(sum(len(row.passages) for row in batch))
            rows = rows[len(batch) :]
        return scores

    def _fitting(self, rows: list[_Row]) -> int:
        """How many of the next rows, the longest of which is the first, go into a batch."""
        if self._rows is not None:
            return self._rows
        return max(1, self._tokens // len(rows[0].shown))

    def _shrink(self, batch: list[_Row]) -> None:
        """Smaller batches from now on."""
        shape = f"{len(batch)} rows of {len(batch[0].shown)} tokens"
        if self._rows is not None:
            raise ValueError(f"a batch of {shape} does not fit the memory: use --batch auto")
        if len(batch) == 1:
            raise ValueError(f"not even a batch of {shape} fits the memory: use a smaller --window")
        self._tokens = len(batch) * len(batch[0].shown) // 2

    @torch.inference_mode()
    def _logits(self, batch: list[_Row]) -> tuple[torch.Tensor, int]:
        """Logits [rows, positions, vocabulary], and which position is their first."""
        longest = len(batch[0].shown)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        for number, row in enumerate(batch):
            ids[number, : len(row.shown)] = torch.from_numpy(row.shown)
        ids = ids.to(self._model.device)
        first = min(len(row.shown) - row.predicted for row in batch)
        if not self._keeps:
            return self._model(input_ids=ids, use_cache=False).logits[:, first:], first
        keep = torch.arange(first, longest, device=ids.device)
        return self._model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits, first


def _rows(passages: Sequence[Passage]) -> list[_Row]:
    """Each distinct input once, the longest first: what does not fit is known at the start."""
    rows: dict[bytes, _Row] = {}
    for index, passage in enumerate(passages):
        assert 1 <= passage.predicted < len(passage.ids)
        shown = passage.ids[:-1]
        row = rows.setdefault(shown.tobytes(), _Row(shown, [], 0))
        row.passages.append(index)
        row.predicted = max(row.predicted, passage.predicted)
    return sorted(rows.values(), key=lambda row: -len(row.shown))


def _empty_scores(passages: Sequence[Passage]) -> list[Score]:
    """Parts of two arrays, made before any logits are.

    Small arrays made in between would lie on top of freed logits, and the process would keep those:
    gigabytes after some hundred windows.
    """
    ends = np.cumsum([passage.predicted for passage in passages])
    size = int(ends[-1]) if len(ends) else 0
    chosen, likeliest = np.empty(size), np.empty(size, dtype=np.bool_)
    cuts = ends[:-1]
    return [
        Score(*parts)
        for parts in zip(np.split(chosen, cuts), np.split(likeliest, cuts), strict=True)
    ]


@torch.inference_mode()
def _fill(
    scores: list[Score],
    batch: list[_Row],
    logits: torch.Tensor,
    first: int,
    passages: Sequence[Passage],
) -> None:
    wide = torch.promote_types(logits.dtype, torch.float32)
    for number, row in enumerate(batch):
        end = len(row.shown) - first
        mine = logits[number, end - row.predicted : end].to(wide)
        total, best = mine.logsumexp(-1), mine.argmax(-1)
        for index in row.passages:
            count, score = passages[index].predicted, scores[index]
            targets = torch.from_numpy(passages[index].ids[-count:]).to(mine.device)
            chosen = mine[-count:].gather(-1, targets[:, None])[:, 0] - total[-count:]
            score.log_probabilities[:] = chosen.double().cpu().numpy()
            score.likeliest[:] = (best[-count:] == targets).cpu().numpy()


def _out_of_memory(error: RuntimeError) -> bool:
    # a CPU's allocator has no exception class of its own
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
