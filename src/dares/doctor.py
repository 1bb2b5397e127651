"""What this machine can do: versions, devices, and whether bf16 products work here."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from dataclasses import dataclass

BF16_FIX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# several sizes: which instructions a product uses depends on its shape
_BF16_PROBE = """
import torch
for size in (1, 16, 64, 256, 768):
    ones = torch.ones(size, size, dtype=torch.bfloat16)
    assert (ones @ ones)[0, 0] == size
"""
OPTIONAL = ("accelerate", "peft", "lm-eval", "datasets", "tensorboard", "triton")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; ok is False where something needs a remedy."""

    name: str
    value: str
    ok: bool = True


def bf16_works(extra_environment: dict[str, str] | None = None) -> bool:
    """Try a bf16 product in a child process: on some virtual CPUs it kills the process."""
    try:
        result = subprocess.run(
            [sys.executable, "-c", _BF16_PROBE],
            env={**os.environ, **(extra_environment or {})},
            capture_output=True,
            check=False,
            timeout=300,
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def guard_bf16() -> None:
    """Before the first bf16 product on a CPU: set what this machine needs, or refuse."""
    variable, value = BF16_FIX
    if variable in os.environ or bf16_works():
        return
    if not bf16_works({variable: value}):
        raise ValueError("bf16 products crash on this CPU: use float32 (run.precision=fp32)")
    os.environ[variable] = value


def examine() -> list[Finding]:
    """Everything that `dares doctor` prints."""
    import torch

    from dares.provenance import commit
    from dares.version import VERSION

    findings = [
        Finding("dares", f"{VERSION}, commit {commit()}" if commit() else VERSION),
        Finding("Python", platform.python_version()),
        Finding("torch", torch.__version__),
        Finding("device", _device()),
        _package("transformers", required=True),
        *(_package(name, required=False) for name in OPTIONAL),
    ]
    return [*findings, _bf16()]


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return f"{len(names)} x {names[0]}"
    if torch.backends.mps.is_available():
        return "Apple GPU (mps)"
    return f"CPU, {torch.get_num_threads()} threads"


def _package(name: str, *, required: bool) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        if required:
            return Finding(name, f"not installed: pip install {name}", ok=False)
        return Finding(name, "not installed (optional)")


def _bf16() -> Finding:
    name, (variable, value) = "bf16 matmul on CPU", BF16_FIX
    if bf16_works():
        set_already = os.environ.get(variable)
        return Finding(name, f"works, with {variable}={set_already}" if set_already else "works")
    if bf16_works({variable: value}):
        return Finding(name, f"crashes here unless you set {variable}={value}", ok=False)
    return Finding(name, "crashes here: use float32", ok=False)
