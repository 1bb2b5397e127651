"""GPT-2: LayerNorm, biases, learned positions."""

from typing import Any

from transformers.models.gpt2.modeling_gpt2 import GPT2Block, GPT2LMHeadModel, GPT2Model

from dares.models.family import make_family
from dares.models.spec import BlockSpec, Branch


def _obstacle(config: Any) -> str | None:
    if config.add_cross_attention:
        return (
            "add_cross_attention=True gives each layer a third sublayer, which routed GPT-2 lacks: "
            "set it to False"
        )
    return None


FAMILY = make_family(
    "GPT2",
    module=__name__,
    model_type="gpt2",
    layer=GPT2Block,
    model=GPT2Model,
    causal_lm=GPT2LMHeadModel,
    spec=BlockSpec(
        layers="h",
        attention=Branch("attn", norm="ln_1"),
        mlp=Branch("mlp", norm="ln_2"),
        obstacle=_obstacle,
    ),
)
DaresGPT2DecoderLayer, DaresGPT2Model, DaresGPT2ForCausalLM = FAMILY.classes
