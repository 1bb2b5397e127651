"""What a family's model classes gain when they are routed. Mixed in before transformers' own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    CausalLMOutputWithPast,
)

from dares.config import config_from_dict
from dares.models.layer import REENTRANT, DepthCall, RoutedLayer
from dares.models.spec import BlockSpec
from dares.schemes import ResidualScheme, build_scheme

if TYPE_CHECKING:  # what these classes are mixed into
    _Mixin = PreTrainedModel
else:
    _Mixin = object


@dataclass
class RoutedModelOutput(BaseModelOutputWithPastAndCrossAttentions):  # GPT-2 asks for the latter
    """The family's output and the routing weights: [B, T, sources] a site, None without choice."""

    routing: tuple[Tensor | None, ...] | None = None


@dataclass
class RoutedCausalLMOutput(CausalLMOutputWithPast):
    """The family's output and the routing weights: [B, T, sources] a site, None without choice."""

    routing: tuple[Tensor | None, ...] | None = None


def scheme_for(config: Any, spec: BlockSpec) -> ResidualScheme:
    """The scheme that a routed model's config describes."""
    if config.depth is None:
        raise ValueError(
            f"a {type(config).model_type!r} config has no 'depth', so there is no scheme to build: "
            "pass depth=dares.preset(...), or use dares.convert for a pretrained model"
        )
    # What a scheme draws now is drawn again by post_init, after the base's weights: these must not
    # depend on the scheme.
    with torch.random.fork_rng(devices=[]):
        return build_scheme(
            config_from_dict(config.depth),
            width=config.hidden_size,
            sites=2 * config.num_hidden_layers,
            parallel=spec.is_parallel(config),
        )


def with_parts_of(module: nn.Module, cls: type) -> Any:
    """An instance of cls that is made of the parts of module, parameters and all."""
    new: Any = object.__new__(cls)
    if isinstance(module, PreTrainedModel):
        PreTrainedModel.__init__(new, module.config)  # transformers keeps a registry of classes
    new.__dict__.update(module.__dict__)
    return new


class Routed(_Mixin):
    """Shared by the inner model and the language model."""

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, ResidualScheme):
            module.reset_parameters()
        else:
            super()._init_weights(module)

    def gradient_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """transformers' own, without reentrant checkpointing."""
        asked = args[0] if args else kwargs.pop("gradient_checkpointing_kwargs", None)
        settings = {"use_reentrant": False, **(asked or {})}
        if settings["use_reentrant"]:
            raise ValueError(REENTRANT)
        super().gradient_checkpointing_enable(settings, *args[1:], **kwargs)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """transformers' own, from safetensors alone."""
        if kwargs.setdefault("use_safetensors", True) is not True:
            raise ValueError(
                f"use_safetensors={kwargs['use_safetensors']!r}: routed models load safetensors "
                "only, since other formats can run code; save the checkpoint again first"
            )
        where = str(args[0] if args else kwargs.get("pretrained_model_name_or_path"))
        try:
            model: Any = super().from_pretrained(*args, **kwargs)
        except SafetensorError as error:
            raise ValueError(
                f"a weights file of {where!r} is damaged ({error}): copy or download it again"
            ) from error
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise ValueError(
                f"the weights of {where!r} do not fit its config: was 'depth' changed since they "
                "were saved?"
            ) from error
        loaded = model[0] if isinstance(model, tuple) else model
        devices = sorted({str(device) for device in getattr(loaded, "hf_device_map", {}).values()})
        if len(devices) > 1:
            raise ValueError(
                f"device_map put {where!r} on {', '.join(devices)}: a routed model needs one "
                "device, since its layers read one another"
            )
        return model


class RoutedModel(Routed):
    """The inner model: its layers routed, and the scheme `depth` that owns the routers.

    The routers live here and not in the layers: a source is scored for every later site at once,
    and FSDP keeps the parameters of the root whole while the layers come and go.
    """

    depth: ResidualScheme
    family_spec: ClassVar[BlockSpec]
    family_model: ClassVar[type[PreTrainedModel]]
    layer_class: ClassVar[type[RoutedLayer]]

    def __init__(self, config: Any) -> None:
        obstacle = self.family_spec.obstacle(config)
        if obstacle:
            raise ValueError(obstacle)
        scheme = scheme_for(config, self.family_spec)  # before the costly part: it may refuse
        super().__init__(config)
        self._install(scheme)
        self.post_init()

    def _install(self, scheme: ResidualScheme) -> None:
        layers: Any = self.depth_layers
        for index, layer in enumerate(layers):
            layers[index] = with_parts_of(layer, self.layer_class)
            layers[index].depth_index = index
        self.depth = scheme

    @property
    def depth_layers(self) -> nn.ModuleList:
        """The decoder layers, whatever the family calls them."""
        layers: nn.ModuleList = getattr(self, self.family_spec.layers)
        return layers

    def forward(
        self,
        *args: Any,
        dares_depth: DepthCall | None = None,
        output_routing: bool = False,
        **kwargs: Any,
    ) -> Any:
        call = dares_depth or DepthCall(record=output_routing)
        call.scheme = self.depth
        as_dict = kwargs.pop("return_dict", None)
        output = self.family_model.forward(
            self, *args, dares_depth=call, return_dict=True, **kwargs
        )
        call.check_finished()
        return _rewrap(RoutedModelOutput, output, call, self.config, as_dict)


class RoutedCausalLM(Routed):
    """The language model: hands the call's record down and the routing up."""

    family_model: ClassVar[type[PreTrainedModel]]
    inner_class: ClassVar[type[RoutedModel]]

    def __init__(self, config: Any) -> None:
        obstacle = self.inner_class.family_spec.obstacle(config)
        if obstacle:
            raise ValueError(obstacle)
        scheme = scheme_for(config, self.inner_class.family_spec)
        super().__init__(config)  # builds the family's own inner model, with its random numbers
        prefix = self.base_model_prefix
        inner = with_parts_of(getattr(self, prefix), self.inner_class)
        inner._install(scheme)
        inner.post_init()
        setattr(self, prefix, inner)
        self.post_init()

    def forward(self, *args: Any, output_routing: bool = False, **kwargs: Any) -> Any:
        call = DepthCall(record=output_routing)
        as_dict = kwargs.pop("return_dict", None)
        output = self.family_model.forward(
            self, *args, dares_depth=call, return_dict=True, **kwargs
        )
        return _rewrap(RoutedCausalLMOutput, output, call, self.config, as_dict)


def _rewrap(kind: Any, output: Any, call: DepthCall, config: Any, as_dict: bool | None) -> Any:
    known = {name: output[name] for name in output if name in kind.__dataclass_fields__}
    routed = kind(**known, routing=call.routing())
    return routed if (config.return_dict if as_dict is None else as_dict) else routed.to_tuple()


def forward_like(family_forward: Any, routed_forward: Any) -> Any:
    """routed_forward under the family's signature, which Trainer and generate look at."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return routed_forward(self, *args, **kwargs)

    signature = inspect.signature(family_forward)
    ours = inspect.Parameter("output_routing", inspect.Parameter.KEYWORD_ONLY, default=False)
    parameters = list(signature.parameters.values())
    parameters.insert(len(parameters) - 1, ours)  # before **kwargs
    vars(forward)["__signature__"] = signature.replace(parameters=parameters)
    forward.__doc__ = family_forward.__doc__
    return forward
