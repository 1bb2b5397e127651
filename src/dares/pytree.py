"""Dataclasses of tensors that travel through a model: seen by FSDP, compile and checkpointing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch.utils import _pytree

_CONTAINERS = (list, dict)  # a tuple, since torch.compile cannot trace list | dict


@dataclass
class TensorState:
    """Base of a dataclass whose fields are tensors, containers of them, or plain values.

    A subclass is a pytree. Fields of type int are its structure, all others its leaves.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

        def flatten(state: Any) -> tuple[list[Any], tuple[tuple[str, ...], dict[str, int]]]:
            values = {field.name: getattr(state, field.name) for field in fields(cls)}
            plain = {name: value for name, value in values.items() if type(value) is int}
            names = tuple(name for name in values if name not in plain)
            return [values[name] for name in names], (names, plain)

        def unflatten(children: Any, context: tuple[tuple[str, ...], dict[str, int]]) -> Any:
            names, plain = context
            return cls(**dict(zip(names, children, strict=True)), **plain)

        _pytree.register_pytree_node(cls, flatten, unflatten)

    def fork(self) -> Any:
        """A copy that can be written without changing this one; tensors are shared.

        Gradient checkpointing runs a layer a second time: each run starts from the state that the
        layer was given, whatever has been written since.
        """
        copied = {name: _shallow(value) for name, value in self.__dict__.items()}
        return type(self)(**copied)


def _shallow(value: Any) -> Any:
    if isinstance(value, TensorState):
        return value.fork()
    return type(value)(value) if isinstance(value, _CONTAINERS) else value
