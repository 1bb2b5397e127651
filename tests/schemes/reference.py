"""METHOD's formulas written out plainly, source by source: slow, and independent of dares."""

from __future__ import annotations

import torch
from torch import Tensor


def route(bank: list[Tensor], query: Tensor, gain: Tensor, *, eps: float, null: bool):
    """softmax over q . (g * u / rms(u)), and the weighted sum."""
    scores = []
    for u in bank:
        rms = torch.sqrt((u * u).mean(-1, keepdim=True) + eps)
        scores.append((query * (gain * u / rms)).sum(-1))
    if null:
        scores.append(torch.zeros_like(scores[0]))
    weights = torch.softmax(torch.stack(scores, -1), -1)
    mix = sum(weights[..., i : i + 1] * u for i, u in enumerate(bank))
    return mix, weights


def merge(kind: str, h: Tensor, mix: Tensor, n: int, read_scale: str, gate: Tensor | None):
    if kind == "gate":
        return h + gate * mix
    if kind == "replace":
        return n * mix if read_scale == "stream" else mix
    assert kind == "add"
    return (h + mix) * n / (n + 1) if read_scale == "stream" else h + mix


def bank_at(
    written: int, h0: Tensor, deltas: list[Tensor], states: list[Tensor], config, projection
):
    """The sources that a site can read after that many writes."""
    done = deltas[:written]
    if config.sources == "sublayer":
        return [h0, *done]
    if config.sources == "block":
        size = 2 * config.block
        sums = [sum(done[i : i + size]) for i in range(0, len(done), size)]
        unfinished = len(done) % size != 0
        return [h0, *(sums[:-1] if unfinished and not config.running else sums)]
    if config.sources == "cumulative":
        return states
    if config.sources == "normed":
        mean = [s.mean(-1, keepdim=True) for s in states]
        return [
            (s - m) / torch.sqrt(((s - m) ** 2).mean(-1, keepdim=True) + 1e-5)
            for s, m in zip(states, mean, strict=True)
        ]
    assert config.sources == "projected"
    return [torch.einsum("oi,...i->...o", projection, s) for s in states]


def forward(config, h0, branches, routers, *, parallel=False, projection=None):
    """The whole pass. routers: site -> (query, gain, gate); returns hidden and weights by site."""
    h, deltas, states, weights = h0, [], [h0], {}
    sites = len(branches)

    def read(site, written):
        bank = bank_at(written, h0, deltas, states, config, projection)
        n = len(bank) + config.null_source
        kind = "replace" if site == sites else config.merge
        if n == 1 or kind == "none" or (site == sites and config.final == "stream"):
            return h
        query, gain, gate = routers[site]
        mix, weights[site] = route(bank, query, gain, eps=config.eps, null=config.null_source)
        return merge(kind, h, mix, n, config.read_scale, gate)

    if parallel:
        for site in range(0, sites, 2):
            pair = [branches[s](read(s, site)) for s in (site, site + 1)]
            h = h + pair[0] + pair[1]
            deltas += pair
            states.append(h)
    else:
        for site in range(sites):
            delta = branches[site](read(site, site))
            h = h + delta
            deltas.append(delta)
            states.append(h)
    return read(sites, sites), weights
