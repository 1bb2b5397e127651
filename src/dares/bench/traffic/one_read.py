"""The plain formula, and one fused kernel a site: both read every source again at every site."""

from __future__ import annotations

from dares.bench.traffic.bank import Bank
from dares.bench.traffic.moved import (
    ADD,
    READ,
    READ32,
    WRITE,
    WRITE32,
    Moved,
    Pass,
    from_exact,
    to_exact,
)


def naive(bank: Bank, half: bool) -> Pass:
    """naive.py: each read stacks its sources, and autograd goes back over every step."""
    forward, backward = Moved(), Moved()
    for site in bank.sites:
        n = site.sources
        forward += to_exact(n + 1, half)  # the sources and the stream
        forward += n * (READ32 + WRITE32)  # stack
        forward += n * (2 * READ32 + WRITE32)  # square, mean
        forward += 2 * n * READ32 + WRITE32  # product with the key, weighted sum
        forward += 4 * READ32 + 3 * WRITE32  # times scale, stream times keep, their sum
        forward += from_exact(1, half)
        backward += to_exact(1, half)
        backward += 2 * (READ32 + WRITE32) + from_exact(1, half)  # keep and scale again
        backward += (n + 2) * READ32 + n * WRITE32  # weighted sum: of the weights, of the sources
        backward += n * READ32 + n * WRITE32  # product with the key: of the key, of the sources
        backward += 4 * n * READ32 + 4 * n * WRITE32  # mean, and the square's three products
        backward += 2 * n * (2 * READ32 + WRITE32)  # these three parts of a source are added up
        backward += from_exact(n, half)
    return Pass(forward, backward + bank.meetings * ADD)


def one_read(bank: Bank, half: bool) -> Pass:
    """The best that a kernel a site can do: scores and sum in one pass over the sources.

    Backward: one pass over the sources again, each gradient added to in place.
    """
    forward, backward = _kernels(bank)
    added = bank.meetings * READ
    return Pass(forward, backward + added)


def one_read_autograd(bank: Bank, half: bool) -> Pass:
    """The same kernels behind autograd: each writes its gradients apart, and they are added up."""
    forward, backward = _kernels(bank)
    added = bank.meetings * ADD
    return Pass(forward, backward + added)


def _kernels(bank: Bank) -> tuple[Moved, Moved]:
    """One kernel a site, forward and backward; it converts in registers."""
    forward, backward = Moved(), Moved()
    for site in bank.sites:
        forward += site.sources * READ + READ + WRITE  # the sources, the stream, the read
        backward += site.sources * READ + 2 * READ  # the sources, the read's gradient, the mix
        backward += site.sources * WRITE  # their gradients
    return forward, backward
