"""The parts of a model that may be wrapped: the base, the scheme, and what PEFT put between."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dares.models.routed_model import RoutedCausalLM
from dares.schemes import ResidualScheme


def unwrapped(model: Any) -> Any:
    """The transformers model inside the wrappers of PEFT, DDP and torch.compile."""
    if hasattr(model, "get_base_model"):
        return unwrapped(model.get_base_model())
    for inside in ("_orig_mod", "module"):
        if isinstance(getattr(model, inside, None), nn.Module):
            return unwrapped(getattr(model, inside))
    return model


def scheme_of(model: Any) -> ResidualScheme:
    """The scheme of a routed language model, which must own something to save."""
    whole = unwrapped(model)
    if not isinstance(whole, RoutedCausalLM):
        raise ValueError(
            f"{type(whole).__name__} has no routers: convert it first, with dares.convert"
        )
    scheme: Any = whole.base_model.depth
    if not isinstance(scheme, ResidualScheme):
        raise ValueError(
            "PEFT holds the routers itself (modules_to_save=['depth']), and saves them with its "
            "adapter: leave them out there, or leave saving them to it"
        )
    if not scheme.state_dict():
        raise ValueError(f"scheme {scheme.config.scheme!r} owns no parameters: it has no routers")
    return scheme


def base_tensors(model: Any) -> dict[str, Tensor]:
    """All that a plain base would bring, by the name it has there; a shared tensor comes once.

    Routers and what PEFT added are left out: a base is the same with and without them.
    """
    whole = unwrapped(model)
    routers = f"{whole.base_model_prefix}.depth."
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in whole.state_dict(keep_vars=True).items():
        if name.startswith(routers) or _is_added_by_peft(name) or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        found[name.replace(".base_layer.", ".").replace(".original_module.", ".")] = tensor
    return found


def _is_added_by_peft(name: str) -> bool:
    parts = name.split(".")
    return "modules_to_save" in parts or any(part.startswith("lora_") for part in parts)
