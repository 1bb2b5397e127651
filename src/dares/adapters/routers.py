"""Save routers alone, and load them onto the base that they belong to."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from dares.adapters.base import BaseIdentity
from dares.adapters.parts import base_tensors, scheme_of, unwrapped
from dares.config import SchemeConfig, config_from_dict
from dares.conversion import convert
from dares.durable import PART, write_whole, writing
from dares.models.routed_model import RoutedCausalLM
from dares.pretrained.find import find_folder
from dares.pretrained.loading import load_model
from dares.version import VERSION

FORMAT = 1
TENSORS, CONFIG = "routers.safetensors", "routers.json"


def save_routers(model: Any, folder: str | Path, *, base: str | Path | None = None) -> None:
    """Write the scheme's own tensors, and which base they belong to, into a folder.

    Routers alone give the model back only where the base is as it was. So a base whose parameters
    can be trained is refused: freeze it (`dares.adapters.freeze_base`), or name with `base` the
    folder or hub name of the model that others will load the routers onto: it is read, and its
    weights must be this model's own to the last bit. A model that was trained whole is saved whole,
    with `save_pretrained`.
    """
    scheme = scheme_of(model)
    identity = BaseIdentity.of(model)
    if base is not None:
        _check_untouched(identity, base)
    elif any(tensor.requires_grad for tensor in base_tensors(model).values()):
        raise ValueError(
            "the base's parameters are open to training, so routers alone may not give this model "
            "back: freeze them, name the untouched model with base=..., or save the whole with "
            "save_pretrained"
        )
    target = Path(folder)
    with writing(f"the routers in {target}"):
        target.mkdir(parents=True, exist_ok=True)
        part = target / (TENSORS + PART)
        save_file({n: t.contiguous() for n, t in scheme.state_dict().items()}, part)
        described = {
            "format": FORMAT,
            "scheme": scheme.config.to_dict(),
            "base": identity.to_dict(),
            "tensors": hashlib.sha256(part.read_bytes()).hexdigest(),
            "versions": {
                "dares": VERSION,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }
        os.replace(part, target / TENSORS)
        write_whole(target / CONFIG, json.dumps(described, indent=1) + "\n")


def load_routers(model: Any, folder: str | Path) -> Any:
    """The routed model that `save_routers` saved, on the same base; refused on any other.

    A plain model is converted first (the two share their weights); a routed one, also inside a PEFT
    model, is given the routers in place. Both are returned ready to use. PEFT adapters come after:
    load the routers, then `PeftModel.from_pretrained`.
    """
    described, tensors = _read(Path(folder))
    config, identity = config_from_dict(described["scheme"]), BaseIdentity(**described["base"])
    inside = unwrapped(model)
    routed = isinstance(inside, RoutedCausalLM)
    if not routed and inside is not model:
        raise ValueError(
            f"{type(model).__name__} wraps a model without routers: load the routers onto that "
            "first, then wrap the result"
        )
    reason = (_other_scheme(model, config) if routed else None) or identity.difference(model)
    if reason is not None:
        raise ValueError(f"the routers in {folder} belong to another base: {reason}")
    # drift is no matter: the routers may be of a scheme that starts as no residual
    result = model if routed else convert(model, config, allow_drift=True)
    scheme = scheme_of(result)
    scheme.to(next(iter(tensors.values())).dtype)  # as they were when they were saved
    scheme.load_state_dict(tensors)
    return result


def _check_untouched(identity: BaseIdentity, base: str | Path) -> None:
    reason = identity.difference(load_model(find_folder(str(base))))
    if reason is not None:
        raise ValueError(
            f"{base} is not the base of these routers ({reason}): they would not give this model "
            "back on it; where the base was trained too, save the whole with save_pretrained"
        )


def _other_scheme(model: Any, config: SchemeConfig) -> str | None:
    own = scheme_of(model).config
    if own == config:
        return None
    return f"it is routed by {own}, they are for {config}"


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors, which must be what was written together."""
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise ValueError(
                f"there are no routers in {folder}: {name} is missing (dares.save_routers makes it)"
            )
    try:
        described = json.loads((folder / CONFIG).read_text())
        if described["format"] != FORMAT:
            raise ValueError(f"format {described['format']}, this version reads {FORMAT}")
        data = (folder / TENSORS).read_bytes()
        if hashlib.sha256(data).hexdigest() != described["tensors"]:
            raise ValueError(f"{TENSORS} is not what was written with {CONFIG}")
        return described, load(data)
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ValueError(
            f"the routers in {folder} cannot be read ({error}): copy or save them again"
        ) from error
