"""Gemma-3 (text): norms on both sides of each sublayer, scaled embeddings, sliding layers."""

from transformers.models.gemma3.modeling_gemma3 import (
    Gemma3DecoderLayer,
    Gemma3ForCausalLM,
    Gemma3TextModel,
)

from dares.models.family import make_family
from dares.models.spec import BlockSpec, Branch

FAMILY = make_family(
    "Gemma3",
    module=__name__,
    model_type="gemma3_text",
    layer=Gemma3DecoderLayer,
    model=Gemma3TextModel,
    causal_lm=Gemma3ForCausalLM,
    spec=BlockSpec(
        attention=Branch("self_attn", norm="input_layernorm", after=("post_attention_layernorm",)),
        mlp=Branch("mlp", norm="pre_feedforward_layernorm", after=("post_feedforward_layernorm",)),
    ),
)
DaresGemma3DecoderLayer, DaresGemma3Model, DaresGemma3ForCausalLM = FAMILY.classes
