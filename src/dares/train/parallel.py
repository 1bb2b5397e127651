"""One process or many: who this one is, and how the model is shared out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from dares.names import unknown_name

MODES = ("ddp", "fsdp")


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run; mode is "none" where it is alone."""

    rank: int
    world: int
    device: torch.device
    mode: str
    storage: Any = None  # a gloo group beside the model's own, for files and what is said of them
    restarted: bool = False  # by torchrun, after one of the ranks died

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

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, on every rank."""
        if self.mode == "none":
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.storage)
        return values

    def agree(self, problem: str | None) -> None:
        """Wait for all ranks; if one has a problem, every rank raises it."""
        for each in self.gather(problem):
            if each is not None:
                raise ValueError(each)

    @contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Rank 0 runs the body alone, the others after it: one makes a file, all find it."""
        if not self.first:
            self.agree(None)
            yield
            return
        try:
            yield
        except ValueError as error:
            self.agree(str(error))
        self.agree(None)


@contextmanager
def joined(mode: str | None) -> Iterator[Ranks]:
    """The ranks that torchrun started, or this process alone."""
    if mode is not None and mode not in MODES:
        raise ValueError(unknown_name("--parallel", mode, MODES))
    if "TORCHELASTIC_RUN_ID" not in os.environ and "RANK" not in os.environ:
        if mode is not None:
            raise ValueError(
                f"--parallel {mode} needs several processes: start it with "
                "torchrun --nproc-per-node N -m dares ..."
            )
        yield Ranks(0, 1, _device(0), "none")
        return
    device = _device(int(os.environ.get("LOCAL_RANK", "0")))
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun's store lives on through a restart, and where the ranks that died were to be
        # found is still in it. (With several nodes, each counts restarts of its own.)
        store = dist.PrefixStore(f"restart {restarts}", store)
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world, timeout=timedelta(minutes=30)
    )
    try:
        # days: others wait here while rank 0 prepares the data
        storage = dist.new_group(backend="gloo", timeout=timedelta(days=7))
        ranks = Ranks(rank, world, device, mode or "ddp", storage)
        yield replace(ranks, restarted=any(ranks.gather(restarts > 0)))
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

    # Sources pass a layer's border as they are, and FSDP itself makes views of them. It warns of
    # writing into such views; nothing here does, and a copy a layer would grow with its square.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
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


def fill(model: Any, whole: Any, ranks: Ranks) -> None:
    """Give a sharded model on the meta device the weights of rank 0's whole one, a shard a rank.

    `whole` is None on the other ranks: a model larger than one rank's memory is only once in all.
    """
    model.to_empty(device=ranks.device)
    model.tie_weights()  # to_empty makes two of what was one
    set_model_state_dict(
        model,
        whole.state_dict() if ranks.first else {},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    # buffers that no state dict holds, such as rotary frequencies
    kept = dict(whole.named_buffers()) if ranks.first else {}
    for name, buffer in model.named_buffers():
        if ranks.first:
            buffer.copy_(kept[name])
        dist.broadcast(buffer, 0)


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
