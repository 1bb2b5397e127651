"""The unit of the count: a vector of width D of one token, read or written."""

from __future__ import annotations

from dataclasses import dataclass, fields

EXACT_BYTES = 4  # float32, in which sums and gathered gradients are kept


@dataclass(frozen=True)
class Moved:
    """Vectors a token, in the model's dtype and in float32; `2 * READ + WRITE` is a sum of two."""

    read: int = 0
    written: int = 0
    exact_read: int = 0
    exact_written: int = 0

    def __add__(self, other: Moved) -> Moved:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Moved(*(own + its for own, its in pairs))

    def __rmul__(self, times: int) -> Moved:
        return Moved(*(times * getattr(self, f.name) for f in fields(self)))

    @property
    def vectors(self) -> int:
        """How many, whatever their dtype."""
        return self.read + self.written + self.exact_read + self.exact_written

    def bytes(self, width: int, itemsize: int) -> int:
        """A token's bytes, for a model of that width and size of a number."""
        stored, exact = self.read + self.written, self.exact_read + self.exact_written
        return width * (itemsize * stored + EXACT_BYTES * exact)


NOTHING = Moved()
READ, WRITE = Moved(read=1), Moved(written=1)
READ32, WRITE32 = Moved(exact_read=1), Moved(exact_written=1)
ADD = 2 * READ + WRITE  # autograd adds two gradients, or a scheme two deltas


@dataclass(frozen=True)
class Pass:
    """A forward and its backward."""

    forward: Moved
    backward: Moved

    def __add__(self, other: Pass) -> Pass:
        return Pass(self.forward + other.forward, self.backward + other.backward)

    @property
    def both(self) -> Moved:
        """The two together."""
        return self.forward + self.backward


def to_exact(vectors: int, half: bool) -> Moved:
    """A float32 copy of vectors in the model's dtype; none is made of what is float32 already."""
    return vectors * (READ + WRITE32) if half else NOTHING


def from_exact(vectors: int, half: bool) -> Moved:
    """The way back."""
    return vectors * (READ32 + WRITE) if half else NOTHING
