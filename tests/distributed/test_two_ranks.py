"""Two gloo ranks, DDP and FSDP2, give what one process gives on the whole batch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.distributed import worker

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """What two ranks have after each case, all run by one torchrun: it takes long to begin."""
    out = tmp_path_factory.mktemp("two_ranks") / "results.pt"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        *("-m", "tests.distributed.worker", str(out)),
    ]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return torch.load(out, weights_only=True)


@pytest.mark.parametrize("case", worker.CASES, ids=lambda case: "-".join(map(str, case)))
def test_same_losses_and_weights(case, two_ranks):
    found = two_ranks[case]
    _, scheme, _, backend = case
    dtype = worker.exact(backend)
    model = worker.build(scheme, checkpointing=False, backend="naive", dtype=dtype)
    losses = worker.train(model, 0, 1, backend)
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    expected = model.state_dict()
    assert found["state"].keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found["state"][name], tensor, rtol=1e-4, atol=1e-5, msg=name)
