"""The command line, as a user meets it."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import dares
from dares import cli, doctor

runner = CliRunner()


def test_help():
    result = runner.invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    for command in ("schemes", "doctor", "demo"):
        assert command in result.output


def test_version():
    assert runner.invoke(cli.app, ["--version"]).output.strip() == f"dares {dares.__version__}"


def test_unknown_command():
    result = runner.invoke(cli.app, ["shcemes"])
    assert result.exit_code == 2
    assert "No such command" in result.output


def test_schemes_lists_every_preset():
    result = runner.invoke(cli.app, ["schemes"])
    assert result.exit_code == 0
    for name in dares.PRESETS:
        assert name in result.output
    assert "4DL - 2D" in result.output


def test_doctor():
    result = runner.invoke(cli.app, ["doctor"])
    assert "transformers" in result.output
    assert "bf16 matmul on CPU" in result.output


def test_doctor_survives_a_crashing_probe(monkeypatch):
    monkeypatch.setattr(doctor, "_BF16_PROBE", "import os; os.abort()")
    assert not doctor.bf16_works()
    finding = doctor._bf16()
    assert not finding.ok
    assert "use float32" in finding.value
    result = runner.invoke(cli.app, ["doctor"])
    assert result.exit_code == 1


def test_doctor_names_the_remedy(monkeypatch):
    variable, value = doctor.BF16_FIX
    monkeypatch.delenv(variable, raising=False)
    probe = f"import os; assert os.environ.get({variable!r}) == {value!r}"
    monkeypatch.setattr(doctor, "_BF16_PROBE", probe)
    assert doctor._bf16().value == f"crashes here unless you set {variable}={value}"


def test_a_users_mistake_is_one_line(monkeypatch, capsys):
    def refuse():
        raise ValueError("block must be between 1 and 3 (the model's layers), got 4")

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert (
        capsys.readouterr().err
        == "error: block must be between 1 and 3 (the model's layers), got 4\n"
    )


def test_demo(monkeypatch):
    monkeypatch.setattr("dares.demo.STEPS", 3)
    result = runner.invoke(cli.app, ["demo"])
    assert result.exit_code == 0, result.output
    assert "difference on 64 tokens: 0" in " ".join(result.output.split())
    assert "layer 5 mlp" in result.output


def test_the_command_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "dares")
    out = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"dares {dares.__version__}"


SMALL = ["--layers", "2", "--width", "16", "--batch", "1", "--tokens", "4", "--rounds", "1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["step", *SMALL, "--heads", "2", "--schemes", "standard,delta"], ["standard", "delta"]),
        (["op", *SMALL], ["grouped", "naive"]),
        (
            ["decode", "--layers", "2", "--width", "16", "--heads", "2", "--rounds", "1"],
            ["standard", "attnres_block", "attnres", "delta_block", "delta"],
        ),
    ],
)
def test_bench_times(arguments, expected, tmp_path):
    out = tmp_path / "rows.json"
    result = runner.invoke(cli.app, ["bench", *arguments, "--json", str(out)])
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())
    assert [row["what"] for row in rows] == expected
    assert rows[0]["ratio"] == 1
    assert all(row["value"] > 0 and row["low"] <= row["ratio"] <= row["high"] for row in rows)


def test_bench_memory_grows_with_depth_alone(tmp_path):
    """What `dares bench memory` is for, at a size that takes a second."""
    out = tmp_path / "rows.json"
    arguments = ["--layers", "4,8,16", "--width", "256", "--batch", "1", "--tokens", "16"]
    result = runner.invoke(cli.app, ["bench", "memory", *arguments, "--json", str(out)])
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())
    for row in rows:
        if row["unit"] == "exponent":
            assert row["value"] < 1.05, row
        elif row["layers"] == 16:
            assert row["ratio"] < 1.20, row


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["step", "--layers", "12,x"], "--layers must be whole numbers"),
        (["step", "--layers", "0"], "--layers must be whole numbers"),
        (["op", "--scheme", "delt"], "unknown preset 'delt'; did you mean 'delta'"),
    ],
)
def test_bench_mistakes(arguments, message):
    result = runner.invoke(cli.app, ["bench", *arguments])
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)
