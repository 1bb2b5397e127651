"""A pass through depth with branches that follow from what they read."""

from __future__ import annotations

import torch


def branches(sites: int, width: int, *, seed: int = 0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = (sites, width, width)
    return torch.randn(shape, generator=generator, dtype=dtype) * width**-0.5


def run(scheme, embeddings, matrices):
    """Every site's branch is tanh(read W)."""
    state = scheme.start(embeddings)
    for site, matrix in enumerate(matrices):
        scheme.write(state, site, torch.tanh(scheme.read(state, site) @ matrix))
    return scheme.finish(state)


def standard(embeddings, matrices):
    stream = embeddings
    for matrix in matrices:
        stream = stream + torch.tanh(stream @ matrix)
    return stream


def jolt(scheme, *, seed: int = 1, size: float = 0.3):
    """Move every parameter away from its start."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return scheme
