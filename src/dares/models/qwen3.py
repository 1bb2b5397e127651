"""Qwen3: pre-norm, the layout that BlockSpec describes by default."""

from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3ForCausalLM, Qwen3Model

from dares.models.family import make_family

FAMILY = make_family(
    "Qwen3",
    module=__name__,
    model_type="qwen3",
    layer=Qwen3DecoderLayer,
    model=Qwen3Model,
    causal_lm=Qwen3ForCausalLM,
)
DaresQwen3DecoderLayer, DaresQwen3Model, DaresQwen3ForCausalLM = FAMILY.classes
