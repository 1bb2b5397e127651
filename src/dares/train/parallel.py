"""One process or many: who this one is, and how the model is shared out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dares.names import unknown_name

MODES = ("ddp", "fsdp")


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run; mode is "none" where it is alone."""

    rank: int
    world: int
    device: torch.device
    mode: str
    storage: Any = None  # a process group of its own for checkpoints written in the background

    @property
    def first(self) -> bool:
        """Is this the one that prints and writes?"""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Each number, summed over all ranks."""
        if self.mode == "none":
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.mode != "none":
            dist.barrier()

    def tell(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.mode == "none":
            return value
        box = [value]
        dist.broadcast_object_list(box, group=self.storage)
        return box[0]

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Rank 0 runs the body alone, the others after it: one makes a file, all find it."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()


@contextmanager
def joined(mode: str | None) -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone."""
    if mode is not None and mode not in MODES:
        raise ValueError(unknown_name("--parallel", mode, MODES))
    if "TORCHELASTIC_RUN_ID" not in os.environ and "RANK" not in os.environ:
        if mode is not None:
            raise ValueError(
                f"--parallel {mode} needs several processes: start it with "
                "torchrun --nproc-per-node N -m dares train ..."
            )
        yield Ranks(0, 1, _device(0), "none")
        return
    device = _device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        storage = dist.new_group(backend="gloo")
        yield Ranks(dist.get_rank(), dist.get_world_size(), device, mode or "ddp", storage)
    finally:
        dist.destroy_process_group()


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def share_out(model: Any, ranks: Ranks, *, bf16: bool, reshard: bool) -> Any:
    """The model as the loop calls it: itself, in DDP, or sharded a layer at a time (FSDP2)."""
    if ranks.mode == "none":
        return model
    if ranks.mode == "ddp":
        ids = None if ranks.device.type == "cpu" else [ranks.device]
        return nn.parallel.DistributedDataParallel(
            model, device_ids=ids, gradient_as_bucket_view=True
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    # Only layers travel in bf16: routers, embedding and norms of the root stay float32. Inputs are
    # not cast, since the stream is float32 and autocast does what the products need.
    lean = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    policy = lean if bf16 else MixedPrecisionPolicy()
    for layer in model.base_model.depth_layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def accumulating(network: Any, *, last: bool) -> Any:
    """Around a backward: DDP exchanges gradients at the last one of a step only."""
    if isinstance(network, nn.parallel.DistributedDataParallel) and not last:
        return network.no_sync()
    return nullcontext()


def inner(network: Any) -> Any:
    """The Hugging Face model inside."""
    if isinstance(network, nn.parallel.DistributedDataParallel):
        return network.module
    return network
