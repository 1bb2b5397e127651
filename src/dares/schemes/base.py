"""The one interface of every residual scheme: start, read, write, finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dares.ops.depth_mix import check_backend
from dares.pytree import TensorState


@dataclass
class DepthState(TensorState):
    """What one forward pass remembers on its way through depth; a scheme adds its own fields."""

    stream: Tensor  # the ordinary residual stream [..., D]
    written: int = 0  # sites written so far
    pending: Tensor | None = None  # deltas of a parallel layer that is not complete yet
    routing: dict[int, Tensor] | None = None  # weights by site, when they are recorded


class Decision(NamedTuple):
    """What a site decided for each token: labels name the entries of values.

    values: [..., n], or [..., n, n] for a matrix over the same labels
    """

    labels: list[str]
    values: Tensor


class Watcher:
    """Sees what passes through a scheme while it is the scheme's `watcher`. Changes nothing."""

    def on_read(self, state: DepthState, site: int, read: Tensor) -> None:
        """A site has read; site number `sites` is the final norm."""

    def on_write(self, state: DepthState, site: int, delta: Tensor) -> None:
        """A site has written, and state.stream is what it is now."""


class ResidualScheme(nn.Module):
    """How a sublayer's input is read from depth, and its output written to it.

        state = scheme.start(embeddings)                      # [..., width]
        for site in range(scheme.sites):
            delta = branch[site](norm[site](scheme.read(state, site)))
            scheme.write(state, site, delta)
        hidden = scheme.finish(state)                         # what the final norm reads

    In a parallel model all sites of a layer are read before any of them is written. The checks are
    here, once; a scheme fills in `_start`, `_read`, `_write` and `_finish`.
    """

    def __init__(
        self,
        config: Any,
        *,
        width: int,
        sites: int,
        sites_per_layer: int = 2,
        parallel: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        for name, value in (
            ("width", width),
            ("sites", sites),
            ("sites_per_layer", sites_per_layer),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}")
        if sites % sites_per_layer:
            raise ValueError(
                f"sites must be a multiple of sites_per_layer, got {sites} and {sites_per_layer}: "
                "pass sites_per_layer=1 where layers differ"
            )
        config.check_layers(sites // sites_per_layer)
        self.config = config
        self.width = width
        self.sites = sites
        self.sites_per_layer = sites_per_layer
        self.parallel = parallel
        self.backend = backend
        self.watcher: Watcher | None = None

    # -- the four calls ------------------------------------------------------------------------

    def start(self, embeddings: Tensor, *, record: bool = False) -> DepthState:
        """A fresh state for one forward pass; record keeps the routing weights."""
        if embeddings.ndim < 1 or embeddings.shape[-1] != self.width:
            raise ValueError(
                f"embeddings must end in width {self.width}, got shape {tuple(embeddings.shape)}"
            )
        if not embeddings.dtype.is_floating_point:
            raise ValueError(
                f"embeddings must be floating point, got {embeddings.dtype}: "
                "embed the token ids first"
            )
        own = next(self.parameters(), embeddings)
        if own.device != embeddings.device:
            raise ValueError(
                f"the scheme is on {own.device}, the embeddings are on {embeddings.device}: "
                "move the scheme with the model"
            )
        _refuse_non_finite(embeddings)
        state = self._start(embeddings, record=record)
        state.routing = {} if record else None
        return state

    def read(self, state: DepthState, site: int) -> Tensor:
        """What enters the sublayer at that site (its own norm comes after)."""
        self._check_site(site)
        needed = self.writes_before(site)
        if state.written != needed:
            done = f"{state.written} have been written"
            if state.written < needed:
                raise ValueError(
                    f"site {site} reads after {needed} writes, but only {done}: "
                    "write every earlier site first"
                )
            raise ValueError(
                f"site {site} reads after {needed} writes, but already {done}: "
                "start a new state for each forward pass"
            )
        read = self._read(state, site)
        if self.watcher is not None:
            self.watcher.on_read(state, site, read)
        return read

    def write(self, state: DepthState, site: int, delta: Tensor) -> None:
        """Take what the sublayer at that site adds to the stream."""
        self._check_site(site)
        if site != state.written:
            raise ValueError(
                f"site {site} was written out of turn: "
                f"the next site of this state is {state.written}"
            )
        stream = state.stream
        if delta.shape != stream.shape:
            raise ValueError(
                f"site {site} wrote shape {tuple(delta.shape)}, the stream is "
                f"{tuple(stream.shape)}: a delta must have the stream's shape"
            )
        if delta.device != stream.device:
            raise ValueError(
                f"site {site} wrote a tensor on {delta.device}, the stream is on {stream.device}: "
                "move the whole model to one device"
            )
        if delta.dtype != stream.dtype and not torch.is_autocast_enabled(stream.device.type):
            raise ValueError(
                f"site {site} wrote {delta.dtype}, the stream is {stream.dtype}: "
                "use one dtype, or torch.autocast"
            )
        self._write(state, site, delta)
        state.written = site + 1
        if self.watcher is not None:
            self.watcher.on_write(state, site, delta)

    def finish(self, state: DepthState) -> Tensor:
        """What the final norm reads, once every site has been written."""
        if state.written != self.sites:
            raise ValueError(
                f"finish needs all {self.sites} sites, but only {state.written} have been written"
            )
        hidden = self._finish(state)
        if self.watcher is not None:
            self.watcher.on_read(state, self.sites, hidden)
        return hidden

    # -- what a scheme fills in ----------------------------------------------------------------

    def _start(self, embeddings: Tensor, *, record: bool) -> DepthState:
        return DepthState(stream=embeddings)

    def _read(self, state: Any, site: int) -> Tensor:
        raise NotImplementedError

    def _write(self, state: Any, site: int, delta: Tensor) -> None:
        raise NotImplementedError

    def _finish(self, state: Any) -> Tensor:
        return state.stream

    def resume(self, state: DepthState, hidden_states: Tensor) -> None:
        """Take the stream back from the model, which may have changed it (a hook, say)."""
        state.stream = hidden_states

    def reset_parameters(self) -> None:
        """Set every parameter and buffer to its start."""

    def identity_obstacle(self) -> str | None:
        """Why this is not the standard residual, with its parameters as they are; None if it is."""
        return None

    def source_labels(self, site: int) -> list[str]:
        """The names of what a site chooses from, in the order of its routing weights.

        Site number `sites` is the final norm. Empty where there is no choice.
        """
        return []

    def decisions(self, state: Any, site: int) -> dict[str, Decision]:
        """What a site that has just read decides beside routing weights, by name."""
        return {}

    def routing(self, state: DepthState) -> tuple[Tensor | None, ...]:
        """The recorded weights [..., sources], one entry a site; None where there is no choice."""
        if state.routing is None:
            raise ValueError("no routing was recorded: pass record=True to start")
        return tuple(state.routing.get(site) for site in range(self.read_sites))

    def carried_vectors(self) -> int:
        """Vectors of the stream's width that a token's pass carries beside the stream."""
        return 0

    # -- how it is computed --------------------------------------------------------------------

    @property
    def backend(self) -> str:
        """Which implementation of depth mixing is used: "auto", or the name of one."""
        return self._backend

    @backend.setter
    def backend(self, name: str) -> None:
        self._use_backend(check_backend(name))
        self._backend = name

    def _use_backend(self, name: str) -> None:
        """Prepare for a backend; schemes that mix nothing need not."""

    # -- shared by schemes ---------------------------------------------------------------------

    @property
    def read_sites(self) -> int:
        """Sites that can have routing weights: one more than `sites` if the final norm routes."""
        return self.sites

    def writes_before(self, site: int) -> int:
        """How many sites have been written when this one is read."""
        return site - site % self.sites_per_layer if self.parallel else site

    def _join_stream(self, state: DepthState, site: int, delta: Tensor) -> bool:
        """h <- h + delta; True when the stream moved.

        A parallel layer sums its deltas first and adds them once, in the order transformers uses,
        so that the stream is equal to the last bit.
        """
        if not self.parallel:
            state.stream = state.stream + delta
            return True
        total = delta if state.pending is None else delta + state.pending
        if (site + 1) % self.sites_per_layer:
            state.pending = total
            return False
        state.stream = total + state.stream
        state.pending = None
        return True

    def _check_site(self, site: int) -> None:
        if not 0 <= site < self.sites:
            raise ValueError(
                f"site {site} is out of range: this scheme has sites 0 to {self.sites - 1}"
            )

    def extra_repr(self) -> str:
        parallel = ", parallel" if self.parallel else ""
        return f"width={self.width}, sites={self.sites}{parallel}"


def set_start(tensor: Tensor, start: Tensor) -> None:
    """Give a parameter or buffer its start, unless transformers loaded it from a checkpoint."""
    if tensor.is_meta or getattr(tensor, "_is_hf_initialized", False):
        return
    with torch.no_grad():
        tensor.copy_(start)


def _refuse_non_finite(embeddings: Tensor) -> None:
    # On an accelerator the answer would cost a synchronisation a step, under compile a graph break.
    # A subclass (a fake tensor, say) may have no values to look at.
    if (
        embeddings.device.type != "cpu"
        or torch.compiler.is_compiling()
        or type(embeddings) not in (Tensor, nn.Parameter)
    ):
        return
    # One sum is cheap; a finite tensor can overflow it, so only then look at every element.
    if not embeddings.detach().sum().isfinite() and not embeddings.isfinite().all():
        raise ValueError(
            "embeddings hold NaN or infinity: look for a diverged or damaged checkpoint, "
            "or a bad inputs_embeds"
        )
