"""--with-code: a folder that loads where there is no dares, to the same bits."""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from dares.cli import app
from dares.families import FAMILY_MODULES
from dares.pretrained.remote_code import needed_modules, write_code
from tests.pretrained.checkpoints import logits, tiny_checkpoint, write_text

runner = CliRunner()

CLEAN = """
import importlib.util, sys
assert importlib.util.find_spec("dares") is None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, again, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
ids = torch.arange(3, 43).view(2, 20)
with torch.no_grad():
    first = model(ids).logits
model.save_pretrained(again)
second = AutoModelForCausalLM.from_pretrained(again, trust_remote_code=True)
loss = second(ids, labels=ids).loss  # in training mode: gradients by the grouped backend
loss.backward()
with torch.no_grad():
    gradients = [parameter.grad for parameter in second.base_model.depth.parameters()]
    torch.save([first, second.eval()(ids).logits, gradients], out)
print(type(model).__module__, AutoTokenizer.from_pretrained(folder, trust_remote_code=True)("cat"))
"""


@pytest.fixture(scope="module")
def clean_python(tmp_path_factory):
    """Python of a virtual environment that has what this one has, but for dares."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith("dares") and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def with_routers(folder):
    """Routers that have learned something, so that there is something to get wrong."""
    file = sorted(folder.glob("*.safetensors"))[-1]
    torch.manual_seed(0)
    routers = {name: tensor + torch.randn_like(tensor) for name, tensor in load_file(file).items()}
    save_file(routers, file, metadata={"format": "pt"})


def check_without_dares(python, tmp_path, folder):
    """The same logits and gradients where there is no dares, also of what is saved again there."""
    with_routers(folder)
    expected = logits(folder)  # by this package
    out = tmp_path / "made.pt"
    result = subprocess.run(
        [python, "-c", CLEAN, str(folder), str(tmp_path / "again"), str(out)],
        env={
            **os.environ,
            "HF_HOME": str(tmp_path / "hf"),
            "PYTHONPATH": "",
            # the same bits come from the same number of threads
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "transformers_modules" in result.stdout
    first, second, gradients = torch.load(out)
    assert torch.equal(first, expected)
    assert torch.equal(second, expected)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def converted(tmp_path, family, *flags):
    source, out = tiny_checkpoint(tmp_path / "base", family), tmp_path / "out"
    arguments = [str(source), str(out), *flags, "--with-code", "--text", str(write_text(tmp_path))]
    result = runner.invoke(app, ["convert", *arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return out


def test_loads_without_dares(clean_python, tmp_path):
    check_without_dares(clean_python, tmp_path, converted(tmp_path, "qwen3", "--block", "2"))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["attnres", "hyper", "mhc", "dense"])
def test_every_scheme_loads_without_dares(scheme, clean_python, tmp_path):
    check_without_dares(clean_python, tmp_path, converted(tmp_path, "llama", "--scheme", scheme))


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({*FAMILY_MODULES.values()} - {"qwen3"}))
def test_every_family_loads_without_dares(family, clean_python, tmp_path):
    check_without_dares(clean_python, tmp_path, converted(tmp_path, family, "--block", "2"))


def test_with_dares_the_package_is_used(tmp_path):
    from transformers import AutoModelForCausalLM

    out = converted(tmp_path, "llama", "--scheme", "delta")
    assert type(AutoModelForCausalLM.from_pretrained(out)).__module__ == "dares.models.llama"
    assert "trust_remote_code=True" in (out / "README.md").read_text()


def test_only_what_the_family_needs(tmp_path):
    names = needed_modules("dares.models.llama")
    assert "dares.models.llama" in names
    assert "dares.ops.depth_mix.products" in names
    assert "dares.models.gpt2" not in names
    for part in ("triton", "conversion", "train", "data", "commands", "pretrained"):
        assert not any(part in name for name in names)


def test_code_names_no_package(tmp_path):
    out = converted(tmp_path, "gpt2", "--scheme", "delta")
    files = list(out.glob("*.py"))
    assert len(files) > 20
    for file in files:
        assert "from dares" not in file.read_text()
        assert "import dares\n" not in file.read_text()
    auto = json.loads((out / "config.json").read_text())["auto_map"]
    assert auto["AutoModelForCausalLM"] == "modeling_dares.DaresGPT2ForCausalLM"


def test_a_base_model_needs_no_code(tmp_path):
    source = tiny_checkpoint(tmp_path / "base")
    with pytest.raises(ValueError, match="holds a llama, not a routed model: it needs no code"):
        write_code(source)
    assert not list(source.glob("*.py"))
