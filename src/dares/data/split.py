"""Train or validation: a document's own text decides, so that adding others moves none."""

from __future__ import annotations

from hashlib import blake2b


def place(text: str) -> float:
    """A number in [0, 1) that follows from the text: below the validation share, it is held out."""
    digest = blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53  # the 53 bits that a float holds exactly
