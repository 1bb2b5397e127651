"""Text to measure perplexity on: whole documents, and the pieces they are compared by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from dares.data.documents import Tally, find_corpus

PIECE = 2000  # characters: a piece ends with the first line that reaches so far


@dataclass(frozen=True)
class Document:
    """A text, and where its pieces end: positions in characters, the last one its length."""

    text: str
    ends: tuple[int, ...]

    @property
    def hash(self) -> str:
        """The same for the same text, whatever the model."""
        return _hash(self.text)


@dataclass(frozen=True)
class Text:
    """The documents of one file or folder."""

    name: str
    documents: tuple[Document, ...]

    @property
    def hash(self) -> str:
        """The same for the same documents in the same order, whatever the file is called."""
        return _hash(" ".join(document.hash for document in self.documents))


def read_text(path: str | Path, limit: int | None = None) -> Text:
    """The first `limit` documents of a file or folder, cut as `dares prepare` cuts them.

    What is not UTF-8 is refused: a replaced byte would be scored as text that nobody wrote.
    """
    tally = Tally()
    texts = list(find_corpus([Path(path)], limit=limit).documents(tally))
    if not texts:
        raise ValueError(f"{path} holds no text: give a file that does")
    if tally.replaced:
        raise ValueError(
            f"{path} is not UTF-8 ({tally.replaced} bytes cannot be read as such): convert it, "
            "with `iconv -f latin1 -t utf-8` for example"
        )
    if any("\0" in text for text in texts):
        raise ValueError(
            f"{path} holds NUL characters, as UTF-16 does: convert it to UTF-8, with "
            "`iconv -f utf-16 -t utf-8` for example"
        )
    return Text(Path(path).name, tuple(Document(text, piece_ends(text)) for text in texts))


def piece_ends(text: str) -> tuple[int, ...]:
    """Where the pieces of a document end. It follows from the text alone, so models agree on it."""
    ends, at = [], 0
    while len(text) - at > PIECE:
        line = text.find("\n", at + PIECE - 1, at + 2 * PIECE)
        at = min(line + 1 if line >= 0 else at + 2 * PIECE, len(text))
        ends.append(at)
    if at < len(text):
        ends.append(len(text))
    return tuple(ends)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
