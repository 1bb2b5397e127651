"""Mistral: pre-norm, the layout that BlockSpec describes by default."""

from transformers.models.mistral.modeling_mistral import (
    MistralDecoderLayer,
    MistralForCausalLM,
    MistralModel,
)

from dares.models.family import make_family

FAMILY = make_family(
    "Mistral",
    module=__name__,
    model_type="mistral",
    layer=MistralDecoderLayer,
    model=MistralModel,
    causal_lm=MistralForCausalLM,
)
DaresMistralDecoderLayer, DaresMistralModel, DaresMistralForCausalLM = FAMILY.classes
