"""Make routed checkpoints known to transformers' Auto classes, without importing transformers.

`import dares` must stay light, and `AutoModelForCausalLM.from_pretrained(routed)` must work after
it. So the registration waits until transformers' own Auto code has been imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

AUTO_CONFIGS = "transformers.models.auto.configuration_auto"
AUTO_MODELS = "transformers.models.auto.modeling_auto"


def register_when_imported() -> None:
    """Register now if transformers' Auto code is loaded, else as soon as it is."""
    if AUTO_CONFIGS in sys.modules:
        _register()
    elif not any(isinstance(finder, _AutoFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AutoFinder())


def _register() -> None:
    importlib.import_module("dares.models.configs")  # registers them as it is loaded


def _loaded(name: str) -> None:
    if name == AUTO_MODELS:
        _register()
    elif AUTO_MODELS not in sys.modules:
        # Every config class needs it for its docstring. Where it is being loaded right now (it
        # imports the configs first), its own turn comes.
        importlib.import_module(AUTO_MODELS)


class _AutoFinder(MetaPathFinder):
    """Finds two modules, the way they would be found anyway, and watches them being loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in (AUTO_CONFIGS, AUTO_MODELS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchingLoader(spec.loader)
        return spec


class _WatchingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _loaded(module.__name__)
