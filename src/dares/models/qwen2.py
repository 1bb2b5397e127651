"""Qwen2: pre-norm, the layout that BlockSpec describes by default."""

from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2ForCausalLM, Qwen2Model

from dares.models.family import make_family

FAMILY = make_family(
    "Qwen2",
    module=__name__,
    model_type="qwen2",
    layer=Qwen2DecoderLayer,
    model=Qwen2Model,
    causal_lm=Qwen2ForCausalLM,
)
DaresQwen2DecoderLayer, DaresQwen2Model, DaresQwen2ForCausalLM = FAMILY.classes
