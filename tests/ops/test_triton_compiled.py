"""Every kernel compiled for real, without a GPU: no spills, and few registers."""

import json
import os
import subprocess
import sys

import pytest

KERNELS = {
    "write_addresses",
    "score_kernel",
    "score_d_source_kernel",
    "score_d_keys_kernel",
    "sums_kernel",
    "sums_backward_kernel",
    "read_kernel",
    "read_backward_kernel",
}
REGISTERS = 128  # a thread's: sixteen warps fit on a multiprocessor
ODD_REGISTERS = 168  # where a width is no multiple of 16, and rows begin anywhere: twelve warps
SHARED = 64 * 1024  # bytes; every GPU from sm_80 on has 99 KB


def compile_all(**choices):
    words = [w for name, values in choices.items() for w in (f"--{name}", *map(str, values))]
    result = subprocess.run(
        [sys.executable, "-m", "dares.ops.depth_mix.triton.ahead", *words],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def check(**choices):
    found = compile_all(**choices)
    assert {each["kernel"] for each in found} == KERNELS
    for each in found:
        assert each["spilled"] == 0, each
        most = ODD_REGISTERS if each["width"] % 16 else REGISTERS
        assert 0 < each["registers"] <= most, each
        assert each["shared"] <= SHARED, each


WIDTHS = [1024, 2048, 4096, 8192]


def test_bfloat16():
    check(arch=[80, 90], width=WIDTHS, dtype=["bfloat16"], routers=[14])


@pytest.mark.slow
@pytest.mark.parametrize("routers", [1, 14, 33, 72, 256])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("arch", [80, 90])
def test_every_dtype_and_size(arch, dtype, routers):
    check(arch=[arch], width=[1000, *WIDTHS], dtype=[dtype], routers=[routers])


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90])
def test_sizes_of_one(arch):
    """Triton compiles a 1 in as a constant, which not every expression takes."""
    check(arch=[arch], width=[1], dtype=["float32"], routers=[1], tokens=[1], old=[1], young=[1])


def test_the_interpreter_compiles_nothing():
    result = subprocess.run(
        [sys.executable, "-m", "dares.ops.depth_mix.triton.ahead", "--width", "64"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert "TRITON_INTERPRET is set" in result.stderr
