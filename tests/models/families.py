"""A tiny random model of every family, with norm gains that are not all one."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Qwen2Config,
    Qwen3Config,
)

import dares

VOCABULARY = 97
LAYERS = 3

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GROUPED = {**_COMMON, "intermediate_size": 48, "num_key_value_heads": 2}

CONFIGS = {
    "qwen3": functools.partial(Qwen3Config, **_GROUPED, head_dim=8, tie_word_embeddings=True),
    "qwen2": functools.partial(Qwen2Config, **_GROUPED, tie_word_embeddings=True),
    "llama": functools.partial(LlamaConfig, **_GROUPED),
    "mistral": functools.partial(MistralConfig, **_GROUPED, sliding_window=6, head_dim=8),
    "gpt2": functools.partial(
        GPT2Config, **_COMMON, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0
    ),
    "gpt_neox": functools.partial(GPTNeoXConfig, **_COMMON, intermediate_size=48),
    "gemma3": functools.partial(
        Gemma3TextConfig,
        **_GROUPED,
        head_dim=8,
        sliding_window=6,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "olmo2": functools.partial(Olmo2Config, **_GROUPED),
}

SCHEMES = {
    "attnres": dares.preset("attnres"),
    "attnres_block": dares.preset("attnres_block", block=2),
    "delta": dares.preset("delta"),
    "delta_block": dares.preset("delta_block", block=2),
    "gate": dares.preset("delta", merge="gate"),
}

OTHERS = {
    "ddl": dares.preset("ddl"),
    "ddl4": dares.preset("ddl", columns=4),
    "hyper": dares.preset("hyper"),
    "mhc": dares.preset("mhc"),
    "dense": dares.preset("dense"),
}
ALL = {**SCHEMES, **OTHERS}


def tiny_config(family: str, **changes: Any) -> Any:
    return CONFIGS[family](**changes)


def tiny_model(family: str, *, embedding_std: float = 0.02, attention: str = "sdpa") -> Any:
    """Random weights, random norm gains and biases, embeddings of the given size."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        tiny_config(family), attn_implementation=attention
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif "embed" not in name and "wte" not in name and "wpe" not in name:
                parameter.mul_(4)  # the default 0.02 leaves branches that hardly do anything
        model.get_input_embeddings().weight.normal_(std=embedding_std)
    return model


def lively_llama(vocabulary: int, **changes: Any) -> Any:
    """A Llama to save and fine-tune; at the usual 0.02 its branches would hardly do anything."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.2,
        **changes,
    )
    return AutoModelForCausalLM.from_config(config)


def tokens(batch: int = 2, length: int = 11, *, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def relative_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def converted(model: Any, scheme: str) -> Any:
    """The model under a scheme. No setting of ddl is a pretrained model's residual: it drifts."""
    config = ALL[scheme]
    return dares.convert(model, config, allow_drift=config.scheme == "ddl")


@functools.cache
@torch.enable_grad()
def trained(family: str, scheme: str) -> Any:
    """A converted model after 20 optimizer steps; shared between tests, so leave it as it is."""
    model = converted(tiny_model(family), scheme).train()
    routers = list(model.base_model.depth.parameters())
    others = [p for p in model.parameters() if all(p is not router for router in routers)]
    optimizer = torch.optim.AdamW([{"params": routers, "lr": 5e-2}, {"params": others, "lr": 1e-3}])
    for step in range(20):
        batch = tokens(2, 12, seed=step)
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()
