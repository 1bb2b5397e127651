"""Delta Attention Residuals: residual connections that learn which earlier layers to read.

In any PyTorch model: `build_scheme(preset("delta"), width=..., sites=...)`, then start, read,
write, finish. With transformers: `from_config` for a new model, `convert` for a pretrained one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dares.auto import register_when_imported
from dares.config import DepthConfig, SchemeConfig, StandardConfig
from dares.ops.depth_mix import depth_mix
from dares.presets import PRESETS, preset
from dares.schemes import DepthState, ResidualScheme, build_scheme
from dares.version import VERSION

if TYPE_CHECKING:
    from dares.adapters import load_routers, save_routers
    from dares.conversion import ConversionReport, convert, unconvert
    from dares.models import from_config

__version__ = VERSION

__all__ = [
    "PRESETS",
    "ConversionReport",
    "DepthConfig",
    "DepthState",
    "ResidualScheme",
    "SchemeConfig",
    "StandardConfig",
    "build_scheme",
    "convert",
    "depth_mix",
    "from_config",
    "load_routers",
    "preset",
    "save_routers",
    "unconvert",
]

# These need transformers, which takes seconds to import: fetched at first use.
_LAZY = {
    "ConversionReport": "dares.conversion",
    "convert": "dares.conversion",
    "unconvert": "dares.conversion",
    "from_config": "dares.models",
    "load_routers": "dares.adapters",
    "save_routers": "dares.adapters",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dares' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


register_when_imported()
