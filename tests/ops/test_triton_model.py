"""A whole model on the Triton backend, under what people train with, against naive."""

import contextlib

import pytest
import torch

import dares
from tests.models.families import SCHEMES, tiny_model, tokens
from tests.ops.passes import assert_all_close


def build(scheme, backend):
    model = dares.convert(tiny_model("qwen3"), SCHEMES[scheme])
    torch.manual_seed(1)
    depth = model.base_model.depth
    depth.backend = backend
    for router in depth.parameters():
        torch.nn.init.normal_(router, std=0.5)
    return model.train()


def gradients(model, run, ids):
    run(input_ids=ids, labels=ids).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("scheme", "how"),
    [
        ("gate", "plain"),
        ("delta", "checkpointing"),
        ("delta_block", "checkpointing"),
        ("delta", "offload"),
        ("delta_block", "autocast"),
        ("delta_block", "compile"),
    ],
)
def test_same_gradients_as_naive(scheme, how):
    ids = tokens(1, 3)
    results = []
    for backend in ("triton", "naive"):
        model = build(scheme, backend)
        run, around = model, contextlib.nullcontext()
        if how == "checkpointing":
            model.gradient_checkpointing_enable()
        elif how == "offload":
            around = torch.autograd.graph.save_on_cpu()
        elif how == "autocast":
            around = torch.autocast("cpu", dtype=torch.bfloat16)
        elif how == "compile" and backend == "triton":
            torch._dynamo.reset()
            run = torch.compile(model, fullgraph=True, backend="aot_eager")  # no graph break
        with around:
            results.append(gradients(model, run, ids))
    mine, theirs = results
    tolerance = 0.05 if how == "autocast" else 1e-4
    assert_all_close(mine.values(), theirs.values(), tolerance)
