"""`dares prepare`, as a user meets it."""

import json

import typer
from typer.testing import CliRunner

from dares.commands.prepare import prepare
from tests.data.texts import stories, write_jsonl

app = typer.Typer()
app.command()(prepare)
runner = CliRunner()


def test_made_then_reused(tmp_path):
    source = write_jsonl(tmp_path / "a.jsonl", ["", *stories(200)])
    arguments = [str(source), "--vocabulary", "300", "--row-tokens", "32"]
    arguments += ["--cache", str(tmp_path), "--json", str(tmp_path / "figures.json")]
    first = runner.invoke(app, arguments)
    assert first.exit_code == 0, first.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert f"200 ({figures['text_bytes'] / 1e6:,.1f} MB of text)" in first.output
    assert f"{figures['train_rows']} rows of 32" in first.output
    assert "1 left out: nothing in them" in first.output
    assert "MB/s" in first.output
    assert figures["path"] in first.output
    second = runner.invoke(app, arguments)
    assert "before, and reused" in second.output
    assert json.loads((tmp_path / "figures.json").read_text()) == {**figures, "reused": True}


def test_a_mistake_is_one_sentence(tmp_path):
    result = runner.invoke(app, ["./no.txt", "--cache", str(tmp_path)])
    assert isinstance(result.exception, ValueError)  # which the entry point prints
    assert "no such file or folder: ./no.txt" in str(result.exception)


def test_validation_text_of_its_own(tmp_path):
    train = write_jsonl(tmp_path / "train.jsonl", stories(50))
    held_out = write_jsonl(tmp_path / "held-out.jsonl", stories(7, seed=1))
    arguments = [str(train), "--validation-inputs", str(held_out), "--vocabulary", "300"]
    done = runner.invoke(app, [*arguments, "--cache", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "57 (" in done.output
