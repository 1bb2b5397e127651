"""Which part of a routed model learns."""

from __future__ import annotations

from typing import Any

from dares.adapters.parts import scheme_of, unwrapped


def freeze_base(model: Any) -> Any:
    """Let the routers alone learn: every other parameter stays as it is. Returns the model."""
    scheme = scheme_of(model)
    unwrapped(model).requires_grad_(False)
    scheme.requires_grad_(True)
    return model
