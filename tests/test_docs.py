"""The README's examples run, top to bottom, and the docs quote the code as it is."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
import typer
from torch.distributed.run import get_args_parser
from typer.testing import CliRunner

import dares
from dares import cli
from dares.catalog import describe
from dares.train.overrides import apply_overrides
from dares.train.recipes import recipe
from tests.data.texts import stories, write_jsonl
from tests.models.families import tiny_config

ROOT = Path(__file__).parent.parent
runner = CliRunner()


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
        assert cells[2] == f"{told.parameters:,}"
        assert cells[3] == str(told.vectors)
        assert cells[4] == told.converts


def test_readme_tree_is_true():
    text = (ROOT / "README.md").read_text()
    tree = text.split("src/dares/\n")[1].split("```")[0]
    files = re.findall(r"[\w-]+\.(?:py|md)\b", tree)
    known = {
        *(path.name for path in (ROOT / "src").rglob("*.py")),
        *(path.name for folder in ("docs", "examples") for path in (ROOT / folder).iterdir()),
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


def commands() -> list[str]:
    """Every `dares` command that the pages tell a reader to type."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    lines = []
    for page in pages:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL):
            lines += [line.split(" #")[0].strip() for line in block.splitlines()]
    return sorted({line for line in lines if re.match(r"dares |torchrun ", line)})


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line):
    """Parsed by torchrun and by the command line, and the recipe and settings exist."""
    program, *words = shlex.split(line)
    if program == "torchrun":
        launched = get_args_parser().parse_args(words)
        assert launched.module
        assert launched.training_script == "dares"
        words = launched.training_script_args
    command = typer.main.get_command(cli.app)
    while hasattr(command, "commands") and words:
        name, *words = words
        command = command.commands[name]
    given = command.make_context("dares", words).params
    if given.get("name") is not None:
        apply_overrides(recipe(given["name"]), given["changes"] or [])
    if program == "torchrun":
        assert given["parallel"] in ("ddp", "fsdp")


def test_there_are_commands():
    found = " ".join(commands())
    for name in ("train tiny", "prepare", "recipes", "plan 8b --gpus 8", "--nnodes 4", "--resume"):
        assert name in found


def test_plan_of_8b_is_what_the_command_prints(monkeypatch):
    text = (ROOT / "docs" / "scaling.md").read_text()
    line, shown = re.search(
        r"```sh\ndares (plan .*)\n```\n\n```\n(.*?)```", text, re.DOTALL
    ).groups()
    monkeypatch.setattr(cli.console, "width", 80)
    printed = runner.invoke(cli.app, shlex.split(line)).output
    assert [row.rstrip() for row in printed.splitlines()] == shown.splitlines()


def test_prepare_of_the_papers_text_is_what_the_recipes_read(monkeypatch):
    (line,) = (c for c in commands() if "fineweb" in c and "--cache" in c)
    asked = {}

    class AskedError(Exception):
        pass

    def prepare(inputs, **options):
        asked.update(inputs=tuple(inputs), **options)
        raise AskedError

    monkeypatch.setattr("dares.data.prepare.prepare", prepare)
    assert isinstance(runner.invoke(cli.app, shlex.split(line)[1:]).exception, AskedError)
    for name in ("220m", "8b-delta"):
        wanted = vars(recipe(name).data)
        assert {key: asked[key] for key in wanted} == wanted


def test_training_page_tells_all_that_a_run_writes(tmp_path):
    text = (ROOT / "docs" / "training.md").read_text()
    source = write_jsonl(tmp_path / "a.jsonl", stories(300))
    small = "data.vocabulary=300 data.row_tokens=32 data.validation=0.1 model.vocabulary=300"
    small += " model.width=16 run.steps=2 run.log_every=1 run.eval_every=2"
    changes = [part for change in small.split() for part in ("--set", change)]
    folders = ["--out", str(tmp_path / "run"), "--cache", str(tmp_path / "cache")]
    result = runner.invoke(cli.app, ["train", "tiny", str(source), *changes, *folders])
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    table = text.split("| in metrics.jsonl")[1].split("\n\n")[0]
    told = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert {key for line in lines for key in json.loads(line)} == told
    tree = text.split("runs/mini-delta/\n")[1].split("```")[0]
    listed = {row.split()[0].rstrip("/") for row in tree.splitlines()}
    assert {path.name for path in (tmp_path / "run").iterdir()} == listed
