"""Set before torch is imported: no hub, quiet libraries, kernels and bf16 that run on any CPU."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
# Triton's kernels run on a CPU then; they ask when they are defined
os.environ.setdefault("TRITON_INTERPRET", "1")
# some virtual CPUs claim AMX and kill the process at the first bf16 product
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch


@pytest.fixture(autouse=True)
def _fixed_randomness():
    torch.manual_seed(0)


def pytest_configure(config):
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)  # the workers share the cores
