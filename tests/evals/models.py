"""A tiny model with a tokenizer of its own, in a folder, as `dares eval` finds one."""

from pathlib import Path

import torch
from transformers import LlamaForCausalLM

import dares
from dares.data.tokenizer import train_tokenizer
from dares.evals.subject import Subject
from tests.data.texts import stories
from tests.models.families import tiny_config

POSITIONS = 64


def tiny_tokenizer(vocabulary=300):
    return train_tokenizer(stories(200), vocabulary)


def save_model(folder: Path, *, seed=0, vocabulary=300, positions=POSITIONS, scheme=None) -> Path:
    """A random model; with a scheme, routed with the same logits."""
    torch.manual_seed(seed)
    config = tiny_config("llama", vocab_size=vocabulary, max_position_embeddings=positions)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # else every token is as likely as any other
    if scheme is not None:
        model = dares.convert(model, scheme)
    model.save_pretrained(folder)
    tiny_tokenizer().save(folder)
    return folder


def tiny_subject(family_model, tokenizer=None, positions=POSITIONS) -> Subject:
    hugging_face = (tokenizer or tiny_tokenizer())._tokenizer
    return Subject("tiny", family_model, hugging_face, positions)
