"""AdamW in three groups, and the learning rate of a step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from dares.train.recipe import OptimSettings


def build_optimizer(model: Any, settings: OptimSettings) -> torch.optim.AdamW:
    """Matrices decay, vectors do not, and routers have a learning rate of their own.

    What is frozen is left out: no gradient comes for it, and its state would be missed at resume.
    A group's `peak` is what its schedule is a share of.
    """
    routers = {id(parameter) for parameter in model.base_model.depth.parameters()}
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    routing: list[nn.Parameter] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in routers:
            routing.append(parameter)
        else:
            (matrices if parameter.ndim > 1 else vectors).append(parameter)
    router_lr = settings.lr if settings.router_lr is None else settings.router_lr
    groups = [
        {"params": matrices, "peak": settings.lr, "weight_decay": settings.weight_decay},
        {"params": vectors, "peak": settings.lr, "weight_decay": 0.0},
        {"params": routing, "peak": router_lr, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        fused=True,
    )
    _begin(optimizer)
    return optimizer


def _begin(optimizer: torch.optim.Optimizer) -> None:
    """Make the state that the first step would make, so that a checkpoint before it is exact.

    (torch would make it when it is saved, with a step already counted.)
    """
    for group in optimizer.param_groups:
        group["lr"] = 0.0  # a step that moves nothing; every true one is given its rate
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for state in optimizer.state.values():
        state["step"].zero_()


def set_learning_rate(
    optimizer: torch.optim.Optimizer, step: int, steps: int, settings: OptimSettings
) -> float:
    """Give every group the rate of that step; returns the one of the first group."""
    share = schedule(step, steps, settings)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share
    return float(optimizer.param_groups[0]["lr"])


def schedule(step: int, steps: int, settings: OptimSettings) -> float:
    """The share of the full rate: up in a line, then down along a cosine to `final_lr`."""
    warmup = settings.warmup
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - 1 - warmup)
    cosine = (1 + math.cos(math.pi * min(1.0, done))) / 2
    return settings.final_lr + (1 - settings.final_lr) * cosine
