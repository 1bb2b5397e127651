"""Who reads what in one pass, as the scheme itself lays it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from dares.bench.traffic.moved import ADD, Pass
from dares.bench.workloads import scheme_config
from dares.config import DepthConfig
from dares.names import unknown_name
from dares.schemes import RoutedScheme, build_scheme

SCHEMES = ("delta", "attnres", "delta_block", "attnres_block")  # those that are counted


@dataclass(frozen=True)
class Site:
    """One read: of finished sources, of the running one if there is one."""

    group: int
    finished: int
    running: bool

    @property
    def sources(self) -> int:
        """How many it reads in all."""
        return self.finished + self.running


@dataclass(frozen=True)
class Bank:
    """The reads of a pass in their order, and how many sites share a finished source.

    block_sites is 1 where every sublayer's delta is a source; final says that the last read comes
    after all writes.
    """

    sites: tuple[Site, ...]
    writes: int
    block_sites: int
    final: bool

    @property
    def stored(self) -> int:
        """Sources that are finished on the way, the embedding among them."""
        return 1 + self.writes // self.block_sites

    @property
    def used(self) -> int:
        """Those that some site reads; the others have no gradient."""
        return self.sites[-1].finished

    def groups(self) -> Iterator[tuple[int, list[Site]]]:
        """For each group: how many sources were finished when it began, and its sites."""
        for _, sites in groupby(self.sites, key=lambda site: site.group):
            members = list(sites)
            yield members[0].finished, members

    @property
    def meetings(self) -> int:
        """Where each site hands each source a gradient: how often one is added to another."""
        return sum(site.finished for site in self.sites) - self.used


def bank_of(scheme: str, layers: int) -> Bank:
    """The bank of a preset in a model with an attention and an MLP a layer."""
    if scheme not in SCHEMES:
        raise ValueError(unknown_name("scheme", scheme, SCHEMES))
    config = scheme_config(scheme, layers)
    built = build_scheme(config, width=1, sites=2 * layers, backend="naive")
    assert isinstance(config, DepthConfig)
    assert isinstance(built, RoutedScheme)
    group_of = [group for group, size in enumerate(built._groups()) for _ in range(size)]
    sites = []
    for site, router in built.router_of_site.items():
        labels = built.source_labels(site)
        running = labels[-1] == "running"
        sites.append(Site(group_of[router], len(labels) - running, running))
    block_sites = 1 if config.block is None else 2 * config.block
    return Bank(tuple(sites), 2 * layers, block_sites, config.final == "routed")


def scheme_itself(bank: Bank) -> Pass:
    """What the scheme adds whatever the backend: running sums, and one more gradient a delta.

    A delta goes into the stream and into a source, so autograd adds two gradients; so does the
    embedding. A running sum is read by one site and goes on into the next sum.
    """
    if bank.block_sites == 1:
        return Pass(0 * ADD, bank.used * ADD)
    forward, backward = 0, 1
    for first in range(0, bank.writes, bank.block_sites):
        members = min(bank.block_sites, bank.writes - first)
        forward += members - 1
        # nobody reads the sum of the last block unless the final norm does
        deltas = members - (first + members == bank.writes and not bank.final)
        backward += deltas + max(0, deltas - 1)
    return Pass(forward * ADD, backward * ADD)
