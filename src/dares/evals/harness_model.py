"""A model as lm-evaluation-harness sees it: its own HFLM, scored by ours. Needs lm-eval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from lm_eval.models.huggingface import HFLM

from dares.evals.scoring import Passage, Scorer
from dares.evals.subject import Subject


class HarnessModel(HFLM):
    """HFLM turns prompts into tokens and generates; log-probabilities come from the scorer.

    HFLM itself would make logits for every position of a prompt, which for a small model is a fifth
    of the work and most of the memory.
    """

    def __init__(self, subject: Subject, scorer: Scorer, rows: int | None) -> None:
        super().__init__(
            pretrained=subject.model,
            tokenizer=subject.tokenizer,
            backend="causal",
            max_length=subject.positions,
            batch_size=rows or 1,  # of generation, which only tasks beyond paper8 ask for
        )
        self._scorer = scorer
        self.truncated = 0  # prompts that lost their beginning
        self.progress: Callable[[int, int], None] = lambda done, total: None

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[Any]:
        """As HFLM's, without its bars: `progress` is told."""
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """(log-probability of the continuation, whether it is the likeliest) of each request."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self.progress(done, len(requests))

        asked = [self._passage(context, answer) for _, context, answer in requests]
        scores = self._scorer.score(asked, advance)
        return [
            (float(score.log_probabilities.sum()), bool(score.likeliest.all())) for score in scores
        ]

    def _passage(self, context: list[int], answer: list[int]) -> Passage:
        if len(answer) > self.max_length:
            raise ValueError(
                f"an answer of {len(answer)} tokens does not fit the model's {self.max_length} "
                "positions: leave this task out"
            )
        ids = context + answer
        room = self.max_length + 1  # the last token is predicted, not shown
        self.truncated += len(ids) > room
        return Passage(np.array(ids[-room:], dtype=np.int64), len(answer))
