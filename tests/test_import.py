"""`import dares` is light, needs torch alone, and makes routed checkpoints loadable."""

import subprocess
import sys
import textwrap

import pytest
import torch

from tests.models.families import tokens, trained


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_is_light():
    out = run("""
        import sys, time
        import torch
        start = time.perf_counter()
        import dares
        print(time.perf_counter() - start)
        print("transformers" in sys.modules)
    """).split()
    assert float(out[0]) < 0.3
    assert out[1] == "False"


def test_schemes_without_transformers():
    out = run("""
        import sys
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("transformers", "safetensors", "typer", "rich"):
                    raise ImportError(name)
        sys.meta_path.insert(0, Absent())
        import dares, torch
        scheme = dares.build_scheme(dares.preset("delta"), width=8, sites=4)
        state = scheme.start(torch.randn(2, 8))
        for site in range(4):
            scheme.write(state, site, scheme.read(state, site).tanh())
        print(scheme.finish(state).shape)
    """)
    assert "torch.Size([2, 8])" in out


@pytest.mark.parametrize(
    "imports",
    [
        "import dares; from transformers import AutoModelForCausalLM",
        "from transformers import AutoModelForCausalLM; import dares",
        "import dares; from transformers import AutoConfig, AutoModelForCausalLM",
        "import dares; from transformers import AutoTokenizer, AutoModelForCausalLM",
        "import dares, transformers; AutoModelForCausalLM = transformers.AutoModelForCausalLM",
        "import dares.conversion; from transformers import AutoModelForCausalLM",
        "import dares; from transformers import LlamaConfig, AutoModelForCausalLM",
        "import dares; from transformers import Qwen3Config, AutoModelForCausalLM",
        "import dares; from transformers import LlamaForCausalLM, AutoModelForCausalLM",
    ],
)
def test_auto_classes_know_routed_checkpoints(imports, tmp_path):
    model, ids = trained("llama", "delta"), tokens()
    model.save_pretrained(tmp_path)
    out = run(f"""
        {imports}
        import torch
        model = AutoModelForCausalLM.from_pretrained({str(tmp_path)!r}).eval()
        ids = torch.tensor({ids.tolist()})
        with torch.no_grad():
            print(type(model).__name__, model(ids).logits.double().sum().item())
    """).split()
    with torch.no_grad():
        expected = model(ids).logits.double().sum().item()
    assert out[0] == "DaresLlamaForCausalLM"
    assert float(out[1]) == pytest.approx(expected, rel=1e-6)


def test_auto_config_alone(tmp_path):
    trained("gemma3", "delta").config.save_pretrained(tmp_path)
    out = run(f"""
        import dares
        from transformers import AutoConfig
        print(type(AutoConfig.from_pretrained({str(tmp_path)!r})).__name__)
    """)
    assert out.strip() == "DaresGemma3TextConfig"


def test_unknown_attribute():
    import dares

    with pytest.raises(AttributeError, match="has no attribute 'convrt'"):
        dares.convrt  # noqa: B018
    assert "convert" in dir(dares)
    assert callable(dares.convert)
    assert callable(dares.convert)  # the second look must find the function too
