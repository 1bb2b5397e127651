"""Pretrained -> routed: identity measured, refusal explained. And back, if nothing is learned."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dares.config import SchemeConfig
from dares.families import FAMILY_MODULES
from dares.models import check_scheme_config, family_of
from dares.models.configs import to_base_config, to_routed_config
from dares.models.family import Family
from dares.models.layer import RoutedLayer
from dares.models.routed_model import Routed, RoutedCausalLM
from dares.ops.depth_mix import check_backend
from dares.schemes import ResidualScheme

logger = logging.getLogger("dares")

TOLERANCE = 1e-4  # largest relative logit difference that conversion lets pass
PROBE_SHAPE = (2, 32)


@dataclass(frozen=True)
class ConversionReport:
    """What conversion measured.

    difference             largest |logit - logit before| on the probe
    relative_difference    the same over the largest |logit before|
    probe_tokens           how many tokens the probe had
    added_parameters       the routers'
    """

    difference: float
    relative_difference: float
    probe_tokens: int
    added_parameters: int


def convert(
    model: Any,
    depth: SchemeConfig,
    *,
    probe: Tensor | None = None,
    allow_drift: bool = False,
    backend: str = "auto",
) -> Any:
    """A routed model with the weights of a pretrained one, and the same logits.

    The parameters are not copied: both models hold the same tensors, so that training one trains
    the other; drop the one you do not need. The model itself is never changed, and where the logits
    would move (relative difference above 1e-4 on the probe) it is refused with the reason, unless
    allow_drift=True. What was measured is in the result's `conversion`, a ConversionReport.

    probe    token ids [B, T] to measure on; random ids by default
    backend  how depth is mixed: "auto", or a name that is taken at its word
    """
    family = _check_model(model)
    scheme_config = check_scheme_config(depth)
    check_backend(backend)
    probe = _check_probe(model, probe)

    routed = _rebuild(model, family.causal_lm, to_routed_config(model.config, scheme_config))
    _scheme(routed).backend = backend
    obstacle = _scheme(routed).identity_obstacle()
    if obstacle and not allow_drift:
        raise ValueError(
            f"conversion would change the model: {obstacle} (allow_drift=True converts anyway)"
        )
    report = _measure(model, routed, probe)
    if not report.relative_difference <= TOLERANCE and not allow_drift:
        raise ValueError(
            "conversion would change the model: the logits move by "
            f"{report.relative_difference:.2g} relative to the largest, above {TOLERANCE:g}; "
            "a hook or a changed attribute may make it differ from what its config says "
            "(allow_drift=True converts anyway)"
        )
    routed.conversion = report
    logger.info(
        "converted: logits differ by %.3g at most (relative %.3g) on %d tokens, %d parameters new",
        report.difference,
        report.relative_difference,
        report.probe_tokens,
        report.added_parameters,
    )
    return routed


def unconvert(routed: Any) -> Any:
    """The base model of a routed one whose routers have learned nothing; they share weights."""
    if not isinstance(routed, RoutedCausalLM):
        raise ValueError(f"unconvert needs a routed language model, got {type(routed).__name__}")
    obstacle = _scheme(routed).identity_obstacle()
    if obstacle:
        raise ValueError(f"the base model would give other logits than this one: {obstacle}")
    family = family_of(routed.config)
    return _rebuild(routed, family.base_causal_lm, to_base_config(routed.config))


def _scheme(routed: Any) -> ResidualScheme:
    return routed.base_model.depth


# -- checks, all of them before anything is built ------------------------------------------------


def _check_model(model: Any) -> Family:
    config = getattr(model, "config", None)
    model_type = getattr(config, "model_type", None)
    if isinstance(model, Routed):
        raise ValueError(
            f"{type(model).__name__} is routed already: dares.unconvert gives the base back"
        )
    if not isinstance(model, nn.Module) or model_type is None:
        raise ValueError(
            f"convert needs a transformers language model, got {type(model).__name__}; "
            f"families: {', '.join(sorted(FAMILY_MODULES))}"
        )
    family = family_of(config)
    if type(model) is not family.base_causal_lm:
        raise ValueError(
            f"convert takes {family.base_causal_lm.__name__} of model_type {model_type!r}, got "
            f"{type(model).__name__}: load it with AutoModelForCausalLM, and convert it before it "
            "is compiled or wrapped in an adapter"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(
            "the model is quantized, so its routers could not be trained with it: "
            "load it without quantization"
        )
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) != 1 or devices == {"meta"}:
        raise ValueError(
            f"the model's weights are on {', '.join(sorted(devices))}: load it onto one real device"
        )
    return family


def _check_probe(model: Any, probe: Tensor | None) -> Tensor:
    vocabulary = model.config.vocab_size
    device = model.get_input_embeddings().weight.device
    if probe is None:
        batch, length = PROBE_SHAPE
        shape = (batch, min(length, getattr(model.config, "max_position_embeddings", length)))
        generator = torch.Generator().manual_seed(0)
        return torch.randint(vocabulary, shape, generator=generator, device="cpu").to(device)
    if not isinstance(probe, Tensor):
        raise ValueError(f"probe must be a tensor of token ids, got {type(probe).__name__}")
    if probe.ndim != 2 or probe.dtype not in (torch.int64, torch.int32) or probe.numel() == 0:
        raise ValueError(
            f"probe must be token ids [batch, tokens], got {probe.dtype} {tuple(probe.shape)}"
        )
    low, high = int(probe.min()), int(probe.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"probe holds token id {low if low < 0 else high}, the vocabulary has {vocabulary}: "
            "use this model's own tokenizer"
        )
    return probe.to(device)


# -- the work ------------------------------------------------------------------------------------


@torch.inference_mode(False)  # or the routers could never be trained
def _rebuild(model: Any, cls: type, config: Any) -> Any:
    """A model of another class around the same parameters and buffers: no second copy in memory."""
    with torch.device("meta"):
        new = cls(config)
    _check_same_tensors(model, new)
    theirs = dict(model.named_modules())
    for path, module in new.named_modules():
        source = theirs.get(path)
        if source is not None:
            _share_tensors(path, source, module)
    _fill_new_tensors(new, model.get_input_embeddings().weight.device)
    new.generation_config = copy.deepcopy(model.generation_config)
    if model.is_gradient_checkpointing:
        new.gradient_checkpointing_enable()
    return new


def _share_tensors(path: str, source: nn.Module, target: nn.Module) -> None:
    for name, parameter in source.named_parameters(recurse=False, remove_duplicate=False):
        target.register_parameter(name, parameter)
    for name, buffer in source.named_buffers(recurse=False, remove_duplicate=False):
        persistent = name not in source._non_persistent_buffers_set
        target.register_buffer(name, buffer, persistent=persistent)
    target.training = source.training
    kind, expected = type(source), type(target)
    if issubclass(expected, RoutedLayer | Routed) or issubclass(kind, RoutedLayer | Routed):
        return
    if kind is not expected:
        raise ValueError(
            f"{path} is a {kind.__name__} where the family has a {expected.__name__}: "
            "convert needs an unmodified model (merge or unload adapters first)"
        )


def _check_same_tensors(model: Any, new: Any) -> None:
    """The two differ in the scheme's tensors and in no other."""
    before, after = (
        {(name, tuple(tensor.shape)) for name, tensor in each.state_dict().items()}
        for each in (model, new)
    )
    odd = sorted((name, shape) for name, shape in before ^ after if ".depth." not in name)
    if odd:
        name, shape = odd[0]
        raise ValueError(
            f"the model and its config differ in {name!r} {shape}: "
            "convert needs an unmodified model"
        )


def _fill_new_tensors(new: Any, device: torch.device) -> None:
    """Give the scheme's own parameters, still without memory, their start on the right device."""
    scheme = getattr(new.base_model, "depth", None)
    if scheme is not None:
        scheme.to_empty(device=device)
        scheme.reset_parameters()


def _measure(model: Any, routed: Any, probe: Tensor) -> ConversionReport:
    try:
        before = _logits(model, probe)
    except RuntimeError as error:
        raise ValueError(
            f"the model itself does not run on the probe ({error}): does it have one dtype?"
        ) from error
    after = _logits(routed, probe)
    if not before.isfinite().all():
        raise ValueError(
            "the model gives logits that are not finite, so identity cannot be measured: "
            "is the checkpoint whole?"
        )
    difference = (after - before).abs().max().item()
    return ConversionReport(
        difference=difference,
        relative_difference=difference / max(before.abs().max().item(), 1e-30),
        probe_tokens=probe.numel(),
        added_parameters=sum(p.numel() for p in _scheme(routed).parameters()),
    )


@torch.no_grad()
def _logits(model: Any, probe: Tensor) -> Tensor:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        return model(input_ids=probe, use_cache=False).logits.float()
    finally:
        for module in training:
            module.training = True
