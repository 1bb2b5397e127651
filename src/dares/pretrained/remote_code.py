"""Code beside a routed model, so that it loads with trust_remote_code and without dares.

It is the package's own source: the modules that the model's family needs, found by following their
imports, each written as one file of a flat folder (transformers copies siblings only), with
`from dares.a.b import c` turned into `from .dares_a_b import c` and nothing else changed.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

from dares.families import FAMILY_MODULES
from dares.models import family_module
from dares.models.configs import PREFIX, routed_config_class
from dares.version import VERSION

PACKAGE = "dares"
ENTRY = "modeling_dares"
CONFIG = "config.json"
TRITON = "dares.ops.depth_mix.triton"

ENTRY_TEXT = '''"""A routed model's code, from the source of dares {version} (MIT licence).

Load this folder with AutoModelForCausalLM.from_pretrained(..., trust_remote_code=True).
"""

from .{configs} import {config_class}
from .{family} import {model_class}, {causal_lm_class}

__all__ = ["{config_class}", "{causal_lm_class}", "{model_class}"]
'''

# Triton's kernels stay out: on a machine without Triton transformers would refuse to load them.
TRITON_TEXT = '''"""In place of dares' Triton kernels, which are not part of this folder."""

REASON = "the code beside this model has no Triton kernels: pip install dares"


def obstacle(plan):
    return REASON


def TritonMixer(plan):
    raise ValueError(REASON)
'''

# The one import by a computed name. transformers copies the files that it sees imported, also when
# a model is saved again: the function names those that are only reached in that way.
FAMILY_IMPORT = ('f"dares.models.{', 'f"{__package__}.dares_models_{')
FAMILY_FILES = f"""

def _files_of_the_family():
    from .{ENTRY} import __all__  # noqa: F401
"""


def write_code(folder: Path) -> list[Path]:
    """Write the code that a routed model's folder needs, and tell transformers of it."""
    path = folder / CONFIG
    config = json.loads(path.read_text())
    base_type = config["model_type"].removeprefix(PREFIX)
    if not config["model_type"].startswith(PREFIX):
        raise ValueError(f"{folder} holds a {base_type}, not a routed model: it needs no code")
    family, module = family_module(base_type).FAMILY, _module_of_family(base_type)
    names = {
        "AutoConfig": routed_config_class(base_type).__name__,
        "AutoModel": family.model.__name__,
        "AutoModelForCausalLM": family.causal_lm.__name__,
    }
    texts = {_flat(name): _flattened(name) for name in needed_modules(module)}
    models = _flat("dares.models")
    assert FAMILY_IMPORT[0] in texts[models]
    texts[models] = texts[models].replace(*FAMILY_IMPORT) + FAMILY_FILES
    texts[_flat(TRITON)] = TRITON_TEXT
    texts[ENTRY] = ENTRY_TEXT.format(
        version=VERSION,
        configs=_flat("dares.models.configs"),
        family=_flat(module),
        config_class=names["AutoConfig"],
        model_class=names["AutoModel"],
        causal_lm_class=names["AutoModelForCausalLM"],
    )
    written = []
    for name, text in texts.items():
        written.append(folder / f"{name}.py")
        written[-1].write_text(text)
    config["auto_map"] = {auto: f"{ENTRY}.{name}" for auto, name in names.items()}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return written


def needed_modules(module: str) -> list[str]:
    """The package's modules that a module of it needs, itself among them; Triton's are left out."""
    found: list[str] = []
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name == TRITON:
            continue
        found.append(name)
        for node in _own_imports(ast.parse(_source(name))):
            waiting += _imported_modules(node)
    return sorted(found)


def _module_of_family(base_type: str) -> str:
    return f"dares.models.{FAMILY_MODULES[base_type]}"


def _flat(module: str) -> str:
    return module.replace(".", "_")


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _own_imports(tree: ast.Module) -> list[ast.ImportFrom]:
    """The statements that import from the package, in the order of their lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            found.append(node)
        assert not (
            isinstance(node, ast.Import)
            and any(a.name.split(".")[0] == PACKAGE for a in node.names)
        ), "the package imports itself with `from` alone"
    return sorted(found, key=lambda node: node.lineno)


def _imported_modules(node: ast.ImportFrom) -> list[str]:
    """`from a import b` needs the module a.b if there is one, else a."""
    assert node.module is not None
    parts = [f"{node.module}.{alias.name}" for alias in node.names]
    modules = [part for part in parts if _is_module(part)]
    return modules if len(modules) == len(parts) else [*modules, node.module]


def _is_module(name: str) -> bool:
    parent = name.rpartition(".")[0]
    spec = importlib.util.find_spec(parent)
    if spec is None or spec.submodule_search_locations is None:
        return False
    return importlib.util.find_spec(name) is not None


def _flattened(module: str) -> str:
    """A module's source with the package's imports made relative to a flat folder."""
    text = _source(module)
    lines = text.splitlines(keepends=True)
    for node in reversed(_own_imports(ast.parse(text))):
        assert node.module is not None
        first = node.lineno - 1
        indent = lines[first][: node.col_offset]
        modules = [alias.name for alias in node.names if _is_module(f"{node.module}.{alias.name}")]
        if not modules:
            old, new = f"from {node.module} import", f"from .{_flat(node.module)} import"
            assert old in lines[first]
            lines[first] = lines[first].replace(old, new, 1)
            continue
        assert len(modules) == len(node.names), "modules are imported in a statement of their own"
        flat = [(_flat(f"{node.module}.{name}"), name) for name in modules]
        # transformers looks for `from .file import`, and copies no file that it does not find so
        lines[first : node.end_lineno] = [
            f"{indent}from .{file} import __name__ as _\n{indent}from . import {file} as {name}\n"
            for file, name in flat
        ]
    return "".join(lines)
