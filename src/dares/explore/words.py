"""Tokens as people can read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNREADABLE = "�"  # what decoders put for bytes that are no character


@dataclass(frozen=True)
class Word:
    """A token of a text; start and end are its characters, the same for pieces of one character."""

    id: int
    text: str
    start: int
    end: int


def split(tokenizer: PreTrainedTokenizerBase, text: str) -> list[Word]:
    """The tokens that the model is given for a text, special ones as its tokenizer adds them."""
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    ids, spans = encoded["input_ids"], [tuple(span) for span in encoded["offset_mapping"]]
    words = []
    for place, (id_, (start, end)) in enumerate(zip(ids, spans, strict=True)):
        piece = start == end or _overlaps(spans, place)
        shown = _piece(tokenizer, id_) if piece else text[start:end]
        words.append(Word(id_, shown, start, end))
    return words


def _overlaps(spans: Sequence[tuple[int, int]], place: int) -> bool:
    """Is the token a piece of a character that a neighbour has pieces of too?"""
    start, end = spans[place]
    before = place > 0 and spans[place - 1][1] > start
    after = place + 1 < len(spans) and spans[place + 1][0] < end
    return before or after


def name_after(tokenizer: PreTrainedTokenizerBase, before: int, id_: int) -> str:
    """What a token would add to a text that ends in the token `before`, its space included."""
    head, whole = (
        str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        for ids in ([before], [before, id_])
    )
    added = whole.removeprefix(head)
    if not added or UNREADABLE in whole or not whole.startswith(head):
        return _piece(tokenizer, id_)
    return added


def _piece(tokenizer: PreTrainedTokenizerBase, id_: int) -> str:
    """A token as its tokenizer calls it; a model may have more embeddings than there are tokens."""
    return str(tokenizer.convert_ids_to_tokens(id_) or f"token {id_}")
