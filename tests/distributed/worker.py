"""Run by torchrun in test_two_ranks.py: train each case a few steps, and save what rank 0 has."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import dares
from tests.models.families import ALL, tiny_model, tokens

ROWS = 4
SIZES = {"triton": (2, 3)}  # steps, tokens a row: the interpreter takes its time
USUAL = (3, 9)
CASES = [  # mode, scheme, gradient checkpointing, backend
    ("ddp", "delta", False, "grouped"),
    ("ddp", "delta_block", True, "grouped"),
    ("fsdp", "delta", False, "grouped"),
    ("fsdp", "delta", True, "grouped"),
    ("fsdp", "delta_block", False, "grouped"),
    ("fsdp", "attnres", True, "grouped"),
    ("fsdp", "cumulative", False, "grouped"),  # reads that leave the stream out
    ("ddp", "ddl", True, "auto"),
    ("ddp", "hyper", False, "auto"),
    ("ddp", "mhc", False, "auto"),
    ("ddp", "dense", False, "auto"),
    ("fsdp", "ddl", False, "auto"),
    ("fsdp", "ddl4", True, "auto"),
    ("fsdp", "hyper", True, "auto"),
    ("fsdp", "mhc", True, "auto"),
    ("fsdp", "dense", True, "auto"),
    ("ddp", "delta_block", False, "triton"),
    ("fsdp", "delta", True, "triton"),
]


def exact(backend: str) -> torch.dtype:
    """Float64 where there is one: what is left of a difference is not rounding."""
    return torch.float32 if backend == "triton" else torch.float64


def build(scheme: str, checkpointing: bool, backend: str, dtype: torch.dtype):
    config = dares.preset("cumulative") if scheme == "cumulative" else ALL[scheme]
    model = dares.convert(tiny_model("qwen3"), config, allow_drift=True).train()
    model.base_model.depth.backend = backend
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.base_model.depth.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.to(dtype)
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


def share_out(model, mode: str):
    if mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    for layer in model.base_model.layers:
        fully_shard(layer)
    return fully_shard(model)


def run(mode: str, scheme: str, checkpointing: bool, backend: str) -> dict:
    model = build(scheme, checkpointing, backend, exact(backend))
    losses = train(share_out(model, mode), dist.get_rank(), dist.get_world_size(), backend)
    total = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(total)
    state = {}
    for name, tensor in model.state_dict().items():
        state[name] = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return {"losses": (total / dist.get_world_size()).tolist(), "state": state}


def main(out: str) -> None:
    dist.init_process_group("gloo")
    results = {case: run(*case) for case in CASES}
    if dist.get_rank() == 0:
        torch.save(results, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
