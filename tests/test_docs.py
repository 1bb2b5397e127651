"""The README's examples run, top to bottom, and the docs quote the code as it is."""

import re
from pathlib import Path

import torch

import dares
from dares.catalog import describe
from tests.models.families import tiny_config

ROOT = Path(__file__).parent.parent


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


def test_readme_examples(tmp_path, monkeypatch, capsys):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_config(tiny_config("qwen3", num_hidden_layers=6)).save_pretrained(
        tmp_path / "base"
    )
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(ROOT / "README.md"))
    code, replaced = re.subn(r'path = "Qwen/Qwen3-0.6B"', 'path = "base"', code)
    assert replaced == 1
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["hidden"].shape == (2, 16, 64)
    assert type(names["model"]).__name__ == "DaresQwen3ForCausalLM"
    assert names["routed"].conversion.difference == 0.0
    ids = names["ids"]
    with torch.no_grad():
        assert torch.equal(names["again"](ids).logits, names["base"].eval()(ids).logits)
    routing = names["routing"]
    assert len(routing) == 12
    assert routing[0] is None
    assert routing[9].shape == (1, 8, 3)
    assert "['embedding', 'block 0', 'running']" in capsys.readouterr().out


def test_readme_table_is_true():
    text = (ROOT / "README.md").read_text()
    for name in dares.PRESETS:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        told = describe(name)
        assert cells[3] == told.parameters
        assert cells[4] == ("yes" if told.converts_exactly else "no")


def test_readme_tree_is_true():
    text = (ROOT / "README.md").read_text()
    tree = text.split("src/dares/\n")[1].split("```")[0]
    files = re.findall(r"[\w-]+\.(?:py|md)\b", tree)
    known = {p.name for p in (ROOT / "src").rglob("*.py")} | {
        p.name for p in (ROOT / "docs").iterdir()
    }
    assert set(files) <= known


def test_new_family_page_quotes_gpt2():
    (quoted,) = blocks(ROOT / "docs" / "new-family.md")
    assert quoted == (ROOT / "src/dares/models/gpt2.py").read_text()


def test_guide_names_every_field():
    import dataclasses

    text = (ROOT / "docs" / "guide.md").read_text()
    for field in dataclasses.fields(dares.DepthConfig):
        assert f"| `{field.name}` |" in text
