"""OLMo-2: post-norm. A sublayer reads the raw stream and its output is normed."""

from transformers.models.olmo2.modeling_olmo2 import (
    Olmo2DecoderLayer,
    Olmo2ForCausalLM,
    Olmo2Model,
)

from dares.models.family import make_family
from dares.models.spec import BlockSpec, Branch

FAMILY = make_family(
    "Olmo2",
    module=__name__,
    model_type="olmo2",
    layer=Olmo2DecoderLayer,
    model=Olmo2Model,
    causal_lm=Olmo2ForCausalLM,
    spec=BlockSpec(
        attention=Branch("self_attn", norm=None, after=("post_attention_layernorm",)),
        mlp=Branch("mlp", norm=None, after=("post_feedforward_layernorm",)),
    ),
)
DaresOlmo2DecoderLayer, DaresOlmo2Model, DaresOlmo2ForCausalLM = FAMILY.classes
