"""Every kernel compiled ahead of time, without a GPU: registers, spills and shared memory.

    python -m dares.ops.depth_mix.triton.ahead --arch 80 90 --width 1024 4096 --dtype bfloat16

The kernels are compiled for the launches that the operators make, with tensors that have no memory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

from dares.ops.depth_mix.triton import launch, read_kernels, score_kernels, sums_kernels
from dares.ops.depth_mix.triton.addresses import AT_ONCE, Addresses, table_launch
from dares.ops.depth_mix.triton.launch import Launch

WIDTHS = (1024, 2048, 4096, 8192)
ARCHITECTURES = (80, 90)
SIZES = {"tokens": 4096, "old": 48, "young": 12}


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes; registers are a thread's, the rest is in bytes."""

    kernel: str
    arch: int
    width: int
    dtype: str
    routers: int
    warps: int
    registers: int
    spilled: int
    shared: int


def launches(
    width: int,
    dtype: torch.dtype,
    routers: int,
    *,
    tokens: int,
    old: int,
    young: int,
) -> Iterator[Launch]:
    """The launches of one group's forward and backward, for tensors of that width and dtype."""

    def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    source, exact = matrix(tokens, width, dtype=dtype), matrix(tokens, width)
    keys, scores, numbers = matrix(routers, width), matrix(tokens, routers), matrix(tokens)
    table = matrix(AT_ONCE, dtype=torch.int64)
    many, sums = Addresses(source, table, 16), Addresses(exact, table, 16)
    softmax, coefficients = matrix(old, tokens, routers), matrix(tokens, 2 + young)
    parts = matrix(score_kernels.score_d_keys_parts(tokens, width), *keys.shape)
    d_young = matrix(young, *source.shape, dtype=dtype)
    d_old = matrix(old, *source.shape, dtype=sums_kernels.d_sources_dtype(routers, dtype))
    yield table_launch(table, [source] * AT_ONCE)
    yield score_kernels.score_launch(source, keys, scores, numbers, 1e-6)
    yield score_kernels.score_d_source_launch(source, keys, scores, numbers, source)
    yield score_kernels.score_d_keys_launch(source, scores, parts)
    yield sums_kernels.sums_launch(softmax, many, sums)
    yield from sums_kernels.sums_backward_launches(softmax, many, sums, softmax, d_old)[:2]
    yield read_kernels.read_launch(source, 1.0, coefficients, exact, exact, many, source)
    yield read_kernels.read_backward_launch(
        source, coefficients, exact, exact, many, coefficients, exact, exact, d_young
    )


class WithoutGpu:
    """As much of Triton's driver as it takes to compile for a GPU that is not there."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.arch  # Triton remembers a target for each device

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_launch(each: Launch, arch: int) -> dict[str, Any]:
    """What the kernel of a launch takes, compiled by Triton as at the launch itself."""
    triton.runtime.driver.set_active(WithoutGpu(arch))
    compiled = each.compile()
    usage = _resource_usage(compiled.asm["cubin"])
    return {
        "kernel": each.kernel.__name__,
        "arch": arch,
        "warps": each.warps,
        "registers": usage["REG"],
        "spilled": usage["STACK"] + usage["LOCAL"],
        "shared": compiled.metadata.shared,
    }


def _resource_usage(cubin: bytes) -> dict[str, int]:
    """What `cuobjdump -res-usage`, which comes with Triton, says of a kernel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run(
            [str(tool), "-res-usage", str(path)], capture_output=True, text=True, check=True
        )
    return {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", done.stdout)}


def main() -> None:
    """Print one JSON object a kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, nargs="+", default=ARCHITECTURES)
    parser.add_argument("--width", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--routers", type=int, nargs="+", default=[14])
    for name, usual in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    if launch.INTERPRETED:
        raise ValueError("TRITON_INTERPRET is set, and nothing is compiled then: unset it")
    sizes = {name: getattr(asked, name) for name in SIZES}
    for arch, width, dtype, routers in product(asked.arch, asked.width, asked.dtype, asked.routers):
        for each in launches(width, getattr(torch, dtype), routers, **sizes):
            taken = compile_launch(each, arch)
            found = Resources(width=width, dtype=dtype, routers=routers, **taken)
            print(json.dumps(asdict(found)), flush=True)


if __name__ == "__main__":
    main()
