"""Make routed checkpoints known to transformers' Auto classes, without importing transformers.

`import dares` must stay light, and `AutoModelForCausalLM.from_pretrained(routed)` must work after
it. So the registration waits until transformers' own Auto code has been imported. A family's routed
config derives from transformers' config of it, which may be the very module whose import led here:
it is registered when both are complete.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from dares.families import FAMILY_MODULES

AUTO_CONFIGS = "transformers.models.auto.configuration_auto"
AUTO_MODELS = "transformers.models.auto.modeling_auto"
CONFIG_MODULES = {
    f"transformers.models.{module}.configuration_{module}": model_type
    for model_type, module in FAMILY_MODULES.items()
}


def register_when_imported() -> None:
    """Register now if transformers' Auto code is loaded, else as soon as it is."""
    if AUTO_CONFIGS in sys.modules:
        importlib.import_module(AUTO_MODELS)
        for name in CONFIG_MODULES:
            importlib.import_module(name)
            _register(name)
    elif not any(isinstance(finder, _AutoFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AutoFinder())


def _register(config_module: str) -> None:
    importlib.import_module("dares.models.configs").register(CONFIG_MODULES[config_module])


def _loaded(name: str, complete: set[str]) -> None:
    complete.add(name)
    if name == AUTO_CONFIGS and AUTO_MODELS not in sys.modules:
        # Every config class needs it for its docstring. Where it is being loaded right now (it
        # imports the configs first), its own turn comes.
        importlib.import_module(AUTO_MODELS)
    elif name == AUTO_MODELS:
        for module in CONFIG_MODULES:
            if module in complete:
                _register(module)
            elif module not in sys.modules:
                importlib.import_module(module)  # and its turn comes at once
    elif name in CONFIG_MODULES and AUTO_MODELS in complete:
        _register(name)


class _AutoFinder(MetaPathFinder):
    """Finds a few modules, the way they would be found anyway, and watches them being loaded."""

    def __init__(self) -> None:
        self.complete: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in (AUTO_CONFIGS, AUTO_MODELS, *CONFIG_MODULES):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchingLoader(spec.loader, self.complete)
        return spec


class _WatchingLoader(Loader):
    def __init__(self, loader: Loader, complete: set[str]) -> None:
        self.loader, self.complete = loader, complete

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _loaded(module.__name__, self.complete)
