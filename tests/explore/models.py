"""Explorers of tiny models whose routers choose, and questions for them."""

import torch
from transformers import LlamaForCausalLM

import dares
from dares.explore.explorer import Explorer
from dares.explore.question import Question, Switch
from tests.evals.models import POSITIONS, tiny_subject
from tests.models.families import tiny_config
from tests.routing.models import EVERY

TEXT = "the layer reads a delta of the stream, token by token"
PLAIN = "plain"  # a model of transformers' own
SCHEMES = (*EVERY, PLAIN)


def model_of(scheme="delta_block", *, positions=POSITIONS):
    """A random model, its scheme's parameters random too, so that tokens differ."""
    torch.manual_seed(0)
    config = tiny_config("llama", vocab_size=300, max_position_embeddings=positions)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # else every token is as likely as any other
    if scheme == PLAIN:
        return model
    model = dares.convert(model, EVERY[scheme], allow_drift=True)
    with torch.no_grad():
        for name, parameter in model.base_model.depth.named_parameters():
            if name != "gain":
                parameter.add_(0.7 * torch.randn(parameter.shape))
    return model.eval()


def explorer(scheme="delta_block", *, most_tokens=48, label="tiny", positions=POSITIONS):
    model = model_of(scheme, positions=positions)
    return Explorer(tiny_subject(model, positions=positions), label, most_tokens=most_tokens)


def question(text=TEXT, off=(), **fields):
    return Question(text, off=frozenset(Switch(*each) for each in off), **fields)
