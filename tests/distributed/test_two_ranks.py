"""Two gloo ranks, DDP and FSDP2, give what one process gives on the whole batch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.distributed import worker

ROOT = Path(__file__).parent.parent.parent


def run_two_ranks(mode, scheme, checkpointing, backend, out):
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *(
            "-m",
            "tests.distributed.worker",
            mode,
            scheme,
            "yes" if checkpointing else "no",
            backend,
            str(out),
        ),
    ]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return torch.load(out, weights_only=True)


@pytest.mark.parametrize(
    ("mode", "scheme", "checkpointing", "backend"),
    [
        ("ddp", "delta", False, "grouped"),
        ("ddp", "delta_block", True, "grouped"),
        ("fsdp", "delta", False, "grouped"),
        ("fsdp", "delta", True, "grouped"),
        ("fsdp", "delta_block", False, "grouped"),
        ("fsdp", "attnres", True, "grouped"),
        ("fsdp", "cumulative", False, "grouped"),  # reads that leave the stream out
        ("ddp", "delta_block", False, "triton"),
        ("fsdp", "delta", True, "triton"),
    ],
)
def test_same_losses_and_weights(mode, scheme, checkpointing, backend, tmp_path):
    found = run_two_ranks(mode, scheme, checkpointing, backend, tmp_path / "result.pt")
    model = worker.build(scheme, checkpointing=False, backend="naive")
    losses = worker.train(model, 0, 1, backend)
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    expected = model.state_dict()
    assert found["state"].keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found["state"][name], tensor, rtol=1e-4, atol=1e-5, msg=name)
