"""Peak memory: one shard while files are written, and the base model besides while it is measured.

In a process of its own, after a first small run: libraries that load themselves are there then.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.pretrained.checkpoints import tiny_checkpoint, write_text

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc"
)
SHARD = 16  # MB
LARGE_SHARD = 48
PEAK = """
import re, sys
from pathlib import Path

def growth(function, *arguments):
    def peak():
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    function(*arguments)
    return peak() - before
"""
WRITE = """
import torch
from dares.pretrained.shards import find_shards, write_shards

def write(source, out, dtype):
    Path(out).mkdir()
    routers = {"model.depth.query": torch.zeros(4, 8)}
    write_shards(find_shards(Path(source)), routers, Path(out), keep=lambda _: True, dtype=dtype)

source, small, out = sys.argv[1:]
for dtype in (None, torch.bfloat16):
    write(small, f"{out}-small-{dtype}", dtype)
    print(growth(write, source, f"{out}-{dtype}", dtype))
"""
CONVERT = """
from dares.presets import preset
from dares.pretrained.convert import convert_checkpoint, plan_conversion
from dares.pretrained.find import find_source

def convert(source, out):
    plan = plan_conversion(find_source(source), Path(out), preset("delta"))
    convert_checkpoint(plan, text=Path(text), command="")

source, small, out, text = sys.argv[1:]
convert(small, out + "-small")
print(growth(convert, source, out))
"""


def run(code, *arguments):
    result = subprocess.run(
        [sys.executable, "-c", PEAK + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [float(word) for word in result.stdout.split()]


def weights(folder, *, megabytes):
    """Shards alone: writing asks for no config."""
    folder.mkdir()
    places = {}
    for number in range(8):
        file, name = f"model-{number + 1:05}-of-00008.safetensors", f"weight.{number}"
        halves = {f"{name}.{half}": torch.randn(megabytes, 1 << 17) for half in (0, 1)}
        save_file(halves, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(halves, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_writing_takes_a_shard_at_a_time(tmp_path):
    source = weights(tmp_path / "source", megabytes=SHARD)  # two of half a megabyte a row: 16 MB
    small = weights(tmp_path / "small", megabytes=1)
    copied, cast = run(WRITE, source, small, tmp_path / "out")
    whole = 8 * SHARD
    # the check reads a tensor of the source and of the copy; casting holds a shard and its cast
    assert copied < 2 * SHARD < whole / 3
    assert cast < 3 * SHARD < whole / 2


@pytest.mark.slow
def test_conversion_takes_the_base_model_and_a_shard(tmp_path):
    shape = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 14}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 8}
    source = tiny_checkpoint(tmp_path / "base", shards=f"{LARGE_SHARD}MB", **shape, **heads)
    size = sum(path.stat().st_size for path in source.glob("*.safetensors")) / 2**20
    assert size > 170
    small = tiny_checkpoint(tmp_path / "small")
    (peak,) = run(CONVERT, source, small, tmp_path / "out", write_text(tmp_path))
    assert size / 2 < peak < size + LARGE_SHARD
