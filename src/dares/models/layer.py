"""The one routed decoder-layer forward, for every family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from dares.models.spec import BlockSpec, Branch
from dares.schemes import DepthState, ResidualScheme

if TYPE_CHECKING:  # what RoutedLayer is mixed into
    _Mixin = nn.Module
else:
    _Mixin = object

REENTRANT = (
    "use_reentrant=True loses the gradients of the sources, which travel beside the hidden states: "
    "pass use_reentrant=False"
)


def _checkpoints_reentrantly(layer: Any) -> bool:
    if not layer.gradient_checkpointing:
        return False
    return bool(getattr(layer._gradient_checkpointing_func, "keywords", {}).get("use_reentrant"))


class DepthCall:
    """One forward pass through depth: the scheme, and the state as the last layer left it."""

    def __init__(self, *, record: bool) -> None:
        self.record = record
        self.scheme: ResidualScheme | None = None
        self.state: DepthState | None = None

    def check_finished(self) -> None:
        """A final norm that routes must have had its read."""
        scheme, state = self.scheme, self.state
        if scheme is None or state is None or scheme.read_sites == scheme.sites:
            return
        if state.written != scheme.sites:
            raise ValueError(
                f"only {state.written} of {scheme.sites} sites ran, and the final norm had no "
                "routed read: leave num_hidden_layers as it was when the model was built"
            )

    def routing(self) -> tuple[Tensor | None, ...] | None:
        """The recorded weights, None where they were not asked for."""
        if not self.record or self.scheme is None or self.state is None:
            return None
        return self.scheme.routing(self.state)


class RoutedLayer(_Mixin):
    """Mixed in before a family's decoder layer: its own modules, read and written by a scheme.

    The state goes in as an argument and comes out as a result, never by the side: gradient
    checkpointing can run the layer again, and FSDP sees every tensor that crosses its border.
    """

    spec: ClassVar[BlockSpec]
    argument_names: ClassVar[tuple[str, ...]]  # of the family's forward, after hidden_states
    depth_index: int

    def __call__(
        self, hidden_states: Tensor, *args: Any, dares_depth: DepthCall | None = None, **kwargs: Any
    ) -> Tensor:
        call = dares_depth
        if call is None or call.scheme is None:
            raise ValueError(
                "a routed layer was called outside its model: call the model, "
                "or use a scheme's start, read, write and finish"
            )
        if self.training and _checkpoints_reentrantly(self):
            raise ValueError(REENTRANT)
        if call.state is None:
            call.state = call.scheme.start(hidden_states, record=call.record)
        hidden_states, call.state = super().__call__(
            hidden_states, *args, depth_scheme=call.scheme, depth_state=call.state, **kwargs
        )
        return hidden_states

    def forward(
        self,
        hidden_states: Tensor,
        *args: Any,
        depth_scheme: ResidualScheme,
        depth_state: DepthState,
        **kwargs: Any,
    ) -> tuple[Tensor, DepthState]:
        kwargs.update(zip(self.argument_names, args, strict=False))
        # a layer may run again for its gradients, from the state that it was given
        scheme = depth_scheme
        state = depth_state.fork() if torch.is_grad_enabled() else depth_state
        scheme.resume(state, hidden_states)
        attention, mlp = self.spec.attention, self.spec.mlp
        site = 2 * self.depth_index

        if scheme.parallel:
            attention_input, mlp_input = scheme.read(state, site), scheme.read(state, site + 1)
            scheme.write(state, site, self._branch(attention, attention_input, kwargs))
            scheme.write(state, site + 1, self._branch(mlp, mlp_input))
        else:
            attention_input = scheme.read(state, site)
            scheme.write(state, site, self._branch(attention, attention_input, kwargs))
            mlp_input = scheme.read(state, site + 1)
            scheme.write(state, site + 1, self._branch(mlp, mlp_input))

        # The model's final norm comes right after the last layer: hand it what it should read.
        last = site + 2 == scheme.sites
        return (scheme.finish(state) if last else state.stream), state

    def _branch(
        self, branch: Branch, hidden: Tensor, arguments: dict[str, Any] | None = None
    ) -> Tensor:
        """The sublayer with its own norm, post-norm and dropout: what it adds to the stream."""
        if branch.norm is not None:
            hidden = getattr(self, branch.norm)(hidden)
        module = getattr(self, branch.module)
        # attention takes the layer's other arguments, and returns its weights beside its output
        output = module(hidden) if arguments is None else module(hidden, **arguments)[0]
        for name in branch.after:
            output = getattr(self, name)(output)
        return output
