"""Llama: pre-norm, the layout that BlockSpec describes by default."""

from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaForCausalLM, LlamaModel

from dares.models.family import make_family

FAMILY = make_family(
    "Llama",
    module=__name__,
    model_type="llama",
    layer=LlamaDecoderLayer,
    model=LlamaModel,
    causal_lm=LlamaForCausalLM,
)
DaresLlamaDecoderLayer, DaresLlamaModel, DaresLlamaForCausalLM = FAMILY.classes
