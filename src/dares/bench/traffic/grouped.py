"""The `grouped` backend in eager mode: gathered.py, products.py and tape.py, step by step."""

from __future__ import annotations

from dares.bench.traffic.bank import Bank, Site
from dares.bench.traffic.moved import (
    NOTHING,
    READ,
    READ32,
    WRITE,
    WRITE32,
    Moved,
    Pass,
    from_exact,
    to_exact,
)
from dares.ops.depth_mix.gathered import FEW_SOURCES


def grouped(bank: Bank, half: bool) -> Pass:
    """Each source is kept once, and read once a group and once a younger site."""
    forward, backward = _store(bank, half), bank.used * _score_gradients(half)
    for finished, sites in bank.groups():
        old = finished if finished > FEW_SOURCES else 0  # a few are read directly
        if old:
            sums = _weighted_sums(old, len(sites), half)
            forward += sums
            backward += sums  # not kept: made again
            backward += _spread(old, len(sites), half)
        for site in sites:
            forward += _read(site, old, half)
            backward += _read_back(site, old, half)
    return Pass(forward, backward + -bank.used * READ32)  # the first part of a gradient is set


def _score(half: bool) -> Moved:
    """One vector for its norm and for its product with the keys."""
    return to_exact(1, half) + 2 * READ32


def _score_gradients(half: bool) -> Moved:
    """Into the keys' gradient, and twice into the vector's own, which leaves in its dtype."""
    into_keys = to_exact(1, half) + READ32
    along_keys, along_itself = READ32 + WRITE32, 2 * READ32 + WRITE32
    return into_keys + along_keys + along_itself + from_exact(1, half)


def _store(bank: Bank, half: bool) -> Moved:
    """Every source is copied to the tape; those that will be read are scored."""
    return bank.stored * (READ + WRITE) + bank.used * _score(half)


def _weighted_sums(old: int, routers: int, half: bool) -> Moved:
    """Each old source once, a sum for each router and the plain one."""
    return to_exact(old, half) + old * READ32 + (routers + 1) * WRITE32


def _spread(old: int, routers: int, half: bool) -> Moved:
    """A group's end: products with its reads' gradients, added to the old sources' gradients."""
    dots = to_exact(old, half) + (old + routers) * READ32
    product = routers * READ32 + old * WRITE32
    added = 2 * old * READ32 + old * WRITE32
    return dots + product + added


def _read(site: Site, old: int, half: bool) -> Moved:
    """The stream, then one term after another: each is read, and so is the total, and written."""
    young = site.sources - old
    terms = young + (2 if old else 0)
    stored = young * READ + (2 * READ32 if old else NOTHING)
    score = _score(half) if site.running else NOTHING
    total = to_exact(1, half) + terms * (READ32 + WRITE32) + from_exact(1, half)
    return score + stored + total


def _read_back(site: Site, old: int, half: bool) -> Moved:
    """The gradient of a read goes to each term: a product with the term, and a part for it."""
    moved = to_exact(1, half)
    if old:
        moved += 3 * READ32  # the gradient with the router's mix and the plain sum
        moved += READ32 + WRITE32  # kept until the group's end
    young = site.finished - old
    if young:
        moved += to_exact(young, half) + (1 + young) * READ32
        moved += young * (2 * READ32 + WRITE32)  # added on the tape
    if site.running:
        moved += READ + READ32 + WRITE32 + READ32  # product with it, and the product's sum
        moved += READ32 + WRITE32 + _score_gradients(half)
    return moved
