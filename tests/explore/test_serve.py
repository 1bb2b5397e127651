"""The command: where it listens, what it refuses, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

import dares
from dares import cli
from dares.explore import serve
from tests.evals.models import save_model

runner = CliRunner()


def refused(*words):
    """The sentence with which a command ends."""
    result = runner.invoke(cli.app, ["explore", *map(str, words)])
    assert isinstance(result.exception, ValueError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "routed"
    return save_model(folder, scheme=dares.preset("delta_block", block=1))


def test_served_to_this_machine_until_interrupted(model):
    command = [sys.executable, "-m", "dares", "explore", str(model)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            address = server.stdout.readline().split()[0]
            assert address.startswith("http://127.0.0.1:")
            with urlopen(f"{address}api/models", timeout=30) as answer:
                (facts,) = json.load(answer)["models"]
            assert facts["label"] == "routed"
            assert facts["most_tokens"] == 64
            if os.path.exists("/proc/net/tcp"):
                port = int(address.rstrip("/").rpartition(":")[2])
                assert listeners(port) == {"0100007F"}  # 127.0.0.1 alone
        finally:
            server.send_signal(signal.SIGINT)
            errors = server.communicate(timeout=30)[1]
    assert server.returncode == 0
    assert "Traceback" not in errors


def listeners(port):
    """The addresses, as the kernel writes them, that something listens at."""
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as lines:
            rows = [line.split() for line in lines][1:]
        found |= {
            row[1].split(":")[0]
            for row in rows
            if row[3] == "0A" and int(row[1].split(":")[1], 16) == port
        }
    return found


def test_a_port_in_use(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} is in use: choose another with --port" in refused(
            model, "--port", port
        )
    assert "--port must be between 0 and 65535, got 70000" in refused(model, "--port", 70000)


def test_wrong_models(model, tmp_path):
    assert "no such folder: '/nowhere/at/all'" in refused("/nowhere/at/all")
    assert "has no config.json" in refused(tmp_path)
    assert refused(model, model) == "a model was named twice: name each once"
    three = ["a", "b", "c"]
    assert refused(*three) == "2 models can be compared side by side, got 3"
    assert "--tokens must be at least 1, got 0" in refused(model, "--tokens", 0)


def test_what_is_not_installed(model, monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else name)
    assert "needs uvicorn, which is not installed: pip install 'dares[explore]'" in refused(model)


def test_open(monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(
        "dares.explore.serve.explore", lambda models, *, ready, **options: ready("http://x/")
    )
    assert runner.invoke(cli.app, ["explore", "a"]).output == "http://x/  (Ctrl-C ends it)\n"
    assert opened == []
    runner.invoke(cli.app, ["explore", "a", "--open"])
    assert opened == ["http://x/"]
