"""Libraries that only some inputs need."""

from __future__ import annotations

import importlib
from typing import Any


def optional_module(name: str, purpose: str) -> Any:
    """The module, or a sentence on how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{purpose} needs {name}, which is not installed: pip install 'dares[data]'"
        ) from error
