"""A study of one's own: a function in a Python file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from dares.names import unknown_name
from dares.study.studies import STUDIES
from dares.study.study import Study
from dares.train.recipe import Recipe

MODULE = "dares_own_study"


def make_study(name: str, base: Recipe) -> Study:
    """The study of that name with a base recipe: one of ours, or FILE.py:FUNCTION."""
    study = _find(name)(base)
    if not isinstance(study, Study):
        raise ValueError(f"{name} must give a dares.study.study.Study, got {study!r}")
    return study


def _find(name: str) -> Callable[[Recipe], Any]:
    if name in STUDIES:
        return STUDIES[name]
    path, _, function = name.rpartition(":")
    if not path.endswith(".py"):
        raise ValueError(unknown_name("study", name, [*STUDIES, "FILE.py:FUNCTION"]))
    module = _load(Path(path))
    functions = {
        key: value
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == MODULE
    }
    if function not in functions:
        raise ValueError(unknown_name(f"function of {path}:", function, functions))
    return functions[function]


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"there is no file {path} with a study in it: check its name")
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
