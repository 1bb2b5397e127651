"""The `triton` backend in eager mode: a kernel reads its inputs once, whatever its programs share.

(Programs of one token read the same gradients; they run side by side and find them in the cache.)
"""

from __future__ import annotations

from dares.bench.traffic.bank import Bank, Site
from dares.bench.traffic.moved import (
    ADD,
    READ,
    READ32,
    WRITE,
    WRITE32,
    Moved,
    Pass,
)


def triton(bank: Bank, half: bool) -> Pass:
    """Sources stay where they are; sums are float32, everything else is in the model's dtype.

    `half` changes nothing here: kernels convert in registers.
    """
    forward, backward = bank.used * READ, bank.used * _score_back()
    given = bank.used  # gradients that sources are handed, one of them by their scores
    for old, sites in bank.groups():
        sums = old * READ + (len(sites) + 1) * WRITE32
        forward += sums
        backward += sums  # not kept: made again
        backward += _sums_back(old, len(sites))
        given += old
        for site in sites:
            forward += _read(site, old)
            backward += _read_back(site, old)
            given += site.finished - old
    return Pass(forward, backward + (given - bank.used) * ADD)


def _score_back() -> Moved:
    """One kernel for the source's gradient, another for the keys'."""
    return READ + WRITE + READ


def _sums_back(old: int, routers: int) -> Moved:
    """The sums' gradients and the sources once; autograd has added up the plain sum's before.

    (One launch: more than 32 routers a group are more sites than the kernels take.)
    """
    plain = (routers - 1) * (2 * READ32 + WRITE32)
    return plain + (routers + 1) * READ32 + old * (READ + WRITE)


def _read(site: Site, old: int) -> Moved:
    """Two sums, the stream and the young sources in, the read out; a running one is scored."""
    young = site.sources - old
    return site.running * READ + 2 * READ32 + READ + young * READ + WRITE


def _read_back(site: Site, old: int) -> Moved:
    """The gradient and every term in, a gradient for every term out."""
    young = site.sources - old
    running = site.running * (_score_back() + ADD)
    return READ + 2 * (READ32 + WRITE32) + young * (READ + WRITE) + running
