"""Run by torchrun in test_two_ranks.py: train a few steps, and save what rank 0 has then."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import dares
from tests.models.families import SCHEMES, tiny_model, tokens

ROWS = 4
SIZES = {"triton": (2, 3)}  # steps, tokens a row: the interpreter takes its time
USUAL = (3, 9)


def build(scheme: str, checkpointing: bool, backend: str):
    config = dares.preset("cumulative") if scheme == "cumulative" else SCHEMES[scheme]
    model = dares.convert(tiny_model("qwen3"), config, allow_drift=True).train()
    model.base_model.depth.backend = backend
    torch.manual_seed(1)
    torch.nn.init.normal_(model.base_model.depth.query, std=0.5)
    if checkpointing:
        model.gradient_checkpointing_enable()
    return model


def train(model, rank: int, ranks: int, backend: str) -> list[float]:
    steps, length = SIZES.get(backend, USUAL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        rows = tokens(ROWS, length, seed=step).chunk(ranks)[rank]
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main(mode: str, scheme: str, checkpointing: str, backend: str, out: str) -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = build(scheme, checkpointing == "yes", backend)
    if mode == "ddp":
        inner, model = model, torch.nn.parallel.DistributedDataParallel(model)
    else:
        inner = model
        for layer in model.base_model.layers:
            fully_shard(layer)
        fully_shard(model)
    losses = train(model, rank, ranks, backend)
    total = torch.tensor(losses)
    dist.all_reduce(total)
    state = {}
    for name, tensor in inner.state_dict().items():
        state[name] = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    if rank == 0:
        torch.save({"losses": (total / ranks).tolist(), "state": state}, out)
    dist.barrier()
    dist.destroy_process_group()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
