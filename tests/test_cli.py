"""The command line, as a user meets it."""

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
    assert "96,256" in result.output  # delta: 47 sites of 24 layers, two vectors of 1,024 each


def test_doctor():
    result = runner.invoke(cli.app, ["doctor"])
    assert "transformers" in result.output
    assert "bf16 matmul on CPU" in result.output


def test_bf16_is_guarded_where_the_probe_finds_it_broken(monkeypatch):
    variable, value = doctor.BF16_FIX
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(doctor, "bf16_works", lambda extra=None: extra == {variable: value})
    doctor.guard_bf16()
    assert os.environ[variable] == value
    monkeypatch.delenv(variable)
    monkeypatch.setattr(doctor, "bf16_works", lambda extra=None: True)
    doctor.guard_bf16()
    assert variable not in os.environ
    monkeypatch.setattr(doctor, "bf16_works", lambda extra=None: False)
    with pytest.raises(ValueError, match="bf16 products crash on this CPU: use float32"):
        doctor.guard_bf16()


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


def test_demo_command(monkeypatch):
    called = []
    monkeypatch.setattr("dares.demo.run", called.append)
    assert runner.invoke(cli.app, ["demo"]).exit_code == 0
    assert called == [cli.console]


def test_the_command_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "dares")
    out = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"dares {dares.__version__}"
