"""One model's answers to the page, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dares.evals.subject import Subject
from dares.explore.measures import MEASURES, divergence, losses
from dares.explore.question import NOTHING_OFF, Question, Switches
from dares.explore.reading import Reading, read_text
from dares.explore.words import Word, name_after, split
from dares.names import unknown_name
from dares.routing.plots.heatmap import source_order
from dares.routing.sites import routed_sites, scheme_of
from dares.schemes import ResidualScheme

LIKELIEST = 8  # next tokens shown, of the model as it is and as it is changed


class Explorer:
    """A model, and the passes over the last text it was asked about."""

    def __init__(self, subject: Subject, label: str, *, most_tokens: int) -> None:
        if most_tokens < 1:
            raise ValueError(f"--tokens must be at least 1, got {most_tokens}")
        self.subject, self.label = subject, label
        self.most_tokens = min(most_tokens, subject.positions)
        self.scheme, self.note = _scheme(subject.model)
        self.sites = [] if self.scheme is None else routed_sites(self.scheme)
        self._ids: tuple[int, ...] = ()
        self._kept: dict[Switches, Reading] = {}

    # -- answers -------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What the page must know of the model before any text."""
        scheme, model = self.scheme, self.subject.model
        sources = [scheme.source_labels(site.index) for site in self.sites] if scheme else []
        return {
            "label": self.label,
            "scheme": None if scheme is None else scheme.config.to_dict(),
            "layers": model.config.get_text_config().num_hidden_layers,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "most_tokens": self.most_tokens,
            "note": self.note,
            "sources": source_order(sources),
            "sites": [
                {"index": site.index, "short": site.short, "name": site.name, "sources": names}
                for site, names in zip(self.sites, sources, strict=True)
            ],
        }

    def tokens(self, asked: Question) -> dict[str, Any]:
        """Every token of the text and its measure; None where there is none."""
        if asked.measure not in MEASURES:
            raise ValueError(unknown_name("measure", asked.measure, MEASURES))
        words, now, plain = self._readings(asked)
        measure = MEASURES[asked.measure]
        missing = measure.routed and not self.sites
        values = [None] * len(words) if missing else _numbers(measure.of(now, plain))
        return {
            "tokens": [
                {"text": word.text, "start": word.start, "end": word.end, "value": value}
                for word, value in zip(words, values, strict=True)
            ],
            "measured": not missing,
            "loss": _mean(losses(now, plain)),
            "loss_before": _mean(losses(plain, plain)),
        }

    def token(self, asked: Question) -> dict[str, Any]:
        """One token: its weights at every site, and what the model predicts after it."""
        words, now, plain = self._readings(asked)
        place = asked.token
        if not 0 <= place < len(words):
            raise ValueError(f"token {place} is not in the text: it has 0 to {len(words) - 1}")
        return {
            "text": words[place].text,
            "weights": [_numbers(now.weights[site.index][place]) for site in self.sites],
            "next": self._next(words, place, now, plain),
            "divergence": float(divergence(plain.logits[place], now.logits[place])),
        }

    # -- what they are made of -----------------------------------------------------------------

    def _next(
        self, words: Sequence[Word], place: int, now: Reading, plain: Reading
    ) -> list[dict[str, Any]]:
        """The likeliest next tokens, in the order of the model as it is; the text's own too."""
        before, after = (reading.logits[place].softmax(-1) for reading in (plain, now))
        count = min(LIKELIEST, len(before))
        follows = words[place + 1].id if place + 1 < len(words) else None
        shown = {*before.topk(count).indices.tolist(), *after.topk(count).indices.tolist()}
        if follows is not None:
            shown.add(follows)
        return [
            {
                "text": name_after(self.subject.tokenizer, words[place].id, id_),
                "before": float(before[id_]),
                "after": float(after[id_]),
                "follows": id_ == follows,
            }
            for id_ in sorted(shown, key=lambda id_: (-float(before[id_]), id_))
        ]

    def _readings(self, asked: Question) -> tuple[list[Word], Reading, Reading]:
        """The text's tokens, the pass with sources switched off, and the one without."""
        words = split(self.subject.tokenizer, asked.text)
        if len(words) > self.most_tokens:
            possible = len(words) <= self.subject.positions
            hint = f", or start with --tokens {len(words)}" if possible else ""
            raise ValueError(
                f"the text has {len(words):,} tokens, and at most {self.most_tokens:,} are taken: "
                f"shorten it{hint}"
            )
        if not words:
            raise ValueError("the tokenizer makes no token of this text: type another")
        ids = tuple(word.id for word in words)
        plain = self._reading(ids, NOTHING_OFF)
        return words, self._reading(ids, asked.off), plain

    def _reading(self, ids: tuple[int, ...], off: Switches) -> Reading:
        """A pass, kept if it was the last of its kind; that with nothing off comes first."""
        if ids != self._ids:
            self._ids, self._kept = ids, {}
        if off not in self._kept:
            done = read_text(self.subject.model, self.scheme, ids, off)
            # Two are kept, as the model is and as it was last changed: another token or measure
            # then costs no pass.
            plain = self._kept.get(NOTHING_OFF, done)
            self._kept = {NOTHING_OFF: plain, off: done}
        return self._kept[off]


def _scheme(model: Any) -> tuple[ResidualScheme | None, str | None]:
    """The model's scheme, if it has one, and why there are no weights to show, if so."""
    try:
        scheme = scheme_of(model)
    except ValueError as error:  # an ordinary model: its losses can be looked at all the same
        return None, str(error)
    if routed_sites(scheme):
        return scheme, None
    return scheme, (
        f"Scheme {scheme.config.scheme!r} has no routing weights, so there are no sources to show "
        "or to switch off. `dares inspect` draws what it has."
    )


def _numbers(values: Tensor) -> list[float | None]:
    """As JSON has them, which knows no NaN."""
    return [None if math.isnan(value) else value for value in values.double().tolist()]


def _mean(values: Tensor) -> float | None:
    known = values[~values.isnan()]
    return float(known.double().mean()) if len(known) else None
