"""GPT-NeoX and Pythia: LayerNorm, and (by default) both branches read the same stream."""

from transformers.models.gpt_neox.modeling_gpt_neox import (
    GPTNeoXForCausalLM,
    GPTNeoXLayer,
    GPTNeoXModel,
)

from dares.models.family import make_family
from dares.models.spec import BlockSpec, Branch

FAMILY = make_family(
    "GPTNeoX",
    module=__name__,
    model_type="gpt_neox",
    layer=GPTNeoXLayer,
    model=GPTNeoXModel,
    causal_lm=GPTNeoXForCausalLM,
    spec=BlockSpec(
        attention=Branch("attention", norm="input_layernorm", after=("post_attention_dropout",)),
        mlp=Branch("mlp", norm="post_attention_layernorm", after=("post_mlp_dropout",)),
        parallel="use_parallel_residual",
    ),
)
DaresGPTNeoXDecoderLayer, DaresGPTNeoXModel, DaresGPTNeoXForCausalLM = FAMILY.classes
