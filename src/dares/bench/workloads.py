"""The models and passes that are measured, from one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dares.config import SchemeConfig
from dares.presets import preset
from dares.schemes import build_scheme


@dataclass(frozen=True)
class Shape:
    """A model and a batch."""

    layers: int = 24
    width: int = 256
    heads: int = 4
    batch: int = 4
    tokens: int = 256
    vocabulary: int = 4096


def scheme_config(name: str, layers: int) -> SchemeConfig:
    """A preset, with blocks that fit the model."""
    config = preset(name)
    block = getattr(config, "block", None)
    return config if block is None else config.replace(block=min(block, layers))


def model(shape: Shape, scheme: str, backend: str = "auto") -> Any:
    """A Qwen3 of that shape with a scheme, the same random weights for every scheme."""
    from transformers import Qwen3Config

    from dares.models import from_config

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=4 * shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        tie_word_embeddings=True,
    )
    return from_config(config, scheme_config(scheme, shape.layers), backend=backend)


def random_ids(shape: Shape) -> Tensor:
    """One batch of token ids [batch, tokens]."""
    return torch.randint(shape.vocabulary, (shape.batch, shape.tokens))


def loss(network: Any, ids: Tensor) -> Tensor:
    """The language-model loss on a batch."""
    return network(input_ids=ids, labels=ids, use_cache=False).loss


def training_step(shape: Shape, scheme: str, backend: str = "auto") -> Callable[[], Any]:
    """Forward and backward of a whole model on one batch."""
    network = model(shape, scheme, backend).train()
    ids = random_ids(shape)

    def step() -> None:
        loss(network, ids).backward()
        network.zero_grad()

    return step


def depth_pass(
    shape: Shape, scheme: str, backend: str, compile_with: str | None = None
) -> Callable[[], Any]:
    """Forward and backward of depth mixing alone, the branches left out."""
    torch.manual_seed(0)
    sites = 2 * shape.layers
    mixing = build_scheme(
        scheme_config(scheme, shape.layers), width=shape.width, sites=sites, backend=backend
    )
    for name, parameter in mixing.named_parameters():
        if name == "query":
            torch.nn.init.normal_(parameter, std=0.1)
    size = (shape.batch, shape.tokens, shape.width)
    embeddings = torch.randn(size, requires_grad=True)
    deltas = [torch.randn(size, requires_grad=True) for _ in range(sites)]
    pull = torch.randn(size)

    def forward(embeddings: Tensor, deltas: list[Tensor]) -> list[Tensor]:
        state = mixing.start(embeddings)
        reads = []
        for site, delta in enumerate(deltas):
            reads.append(mixing.read(state, site))
            mixing.write(state, site, delta)
        return [*reads[1:], mixing.finish(state)]

    run = torch.compile(forward, backend=compile_with) if compile_with else forward
    leaves = [embeddings, *deltas, *mixing.parameters()]

    def step() -> None:
        outputs = run(embeddings, deltas)
        torch.autograd.backward(outputs, [pull] * len(outputs))
        for leaf in leaves:
            leaf.grad = None

    return step


def decoding(shape: Shape, scheme: str, *, prompt: int = 16, new: int = 16) -> Callable[[], Any]:
    """Greedy decoding with a KV cache, one token at a time."""
    network = model(shape, scheme).eval()
    ids = torch.randint(shape.vocabulary, (1, prompt))

    @torch.no_grad()
    def run() -> None:
        out = network(ids, use_cache=True)
        for _ in range(new):
            token = out.logits[:, -1:].argmax(-1)
            out = network(token, past_key_values=out.past_key_values, use_cache=True)

    return run


def saved_bytes(forward: Callable[[], Any], *, ignore: set[int]) -> int:
    """Bytes kept for the backward of forward's result: distinct storages once.

    ignore holds the addresses of storages that are there anyway, the parameters'.
    """
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ignore:
            storages[storage.data_ptr()] = storage.nbytes()
        # the tensor itself would hold the node that holds it, and all of it would stay for ever
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()  # alive until all is counted, so that no address is used twice
    total = sum(storages.values())
    del result
    return total
