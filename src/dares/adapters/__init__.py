"""Routers alone: a small file that turns an untouched base into the trained routed model.

A folder holds `routers.safetensors`, the scheme's own tensors, and `routers.json`: the scheme, the
base that the routers belong to, and what wrote them. They belong to exactly the weights that they
were saved with; on any other base they are refused.
"""

from dares.adapters.base import BaseIdentity, weights_fingerprint
from dares.adapters.freezing import freeze_base
from dares.adapters.routers import load_routers, save_routers

__all__ = [
    "BaseIdentity",
    "freeze_base",
    "load_routers",
    "save_routers",
    "weights_fingerprint",
]
