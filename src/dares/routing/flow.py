"""How large things are by depth: the stream, what routing changes in it, deltas, gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dares.routing.passes import Batch, evaluating, rows_of, run
from dares.routing.samples import GradientSamples, Progress, Samples, length, watching
from dares.routing.sites import scheme_of
from dares.routing.sums import Mean, plain


@dataclass(frozen=True)
class Flow:
    """Means over tokens, one entry a place: the sites, then the final norm (deltas: sites only).

    stream  length of the stream there
    routed  length of read - stream: what routing changes
    turn    angle between read and stream in degrees; a pre-norm sees nothing else
    delta   length of what the site writes
    """

    stream: list[float]
    routed: list[float]
    turn: list[float]
    delta: list[float]
    tokens: int


class FlowSums:
    """Adds up passes."""

    def __init__(self) -> None:
        self._places, self._deltas = Mean(), Mean()

    def add(self, samples: Samples) -> None:
        """Add one pass."""
        streams, reads = torch.stack(samples.streams, 1), torch.stack(samples.reads, 1)
        lengths, read_lengths = length(streams), length(reads)
        # of unit vectors: the arc cosine of a rounded product loses small angles
        unit, read_unit = _unit(streams, lengths), _unit(reads, read_lengths)
        half = torch.atan2(length(read_unit - unit), length(read_unit + unit))
        turn = torch.rad2deg(2 * half)
        self._places.add(torch.stack([lengths, length(reads - streams), turn], -1))
        self._deltas.add(length(torch.stack(samples.deltas, 1)))

    def result(self) -> Flow | None:
        """The means; None where nothing was added."""
        if not self._deltas.count:
            return None
        stream, routed, turn = self._places.mean.unbind(-1)
        return Flow(
            plain(stream), plain(routed), plain(turn), plain(self._deltas.mean), self._deltas.count
        )


def _unit(vectors: Tensor, lengths: Tensor) -> Tensor:
    return vectors / lengths.clamp(min=1e-300).unsqueeze(-1)


def gradient_norms(
    model: Any,
    batches: Iterable[Batch],
    *,
    progress: Progress | None = None,
) -> list[float]:
    """Mean length over tokens of the gradient of a row's summed loss by what each site writes."""
    scheme, sums = scheme_of(model), Mean()
    with evaluating(model), torch.enable_grad():
        for batch in batches:
            rows, samples = rows_of(model, batch), GradientSamples()
            with watching(scheme, samples):
                done = run(model, rows)
            # asked for by name: the parameters' own .grad stay as they were
            gradients = torch.autograd.grad(done.loss_sums.sum(), samples.deltas)
            lengths = torch.stack([length(gradient.double()) for gradient in gradients], -1)
            sums.add(lengths[rows.mask])
            if progress is not None:
                progress(int(rows.mask.sum()))
    if not sums.count:
        raise ValueError("there were no batches to look at: give some rows of tokens")
    return plain(sums.mean)
