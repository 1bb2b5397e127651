"""`dares bench`, as a user meets it."""

import json
import sys

import pytest
from typer.testing import CliRunner

from dares import cli
from dares.bench import run

runner = CliRunner()
SCHEMES = ["standard", "attnres_block", "attnres", "delta_block", "delta"]
TINY = ["--layers", "2", "--width", "16", "--batch", "1", "--tokens", "4", "--rounds", "1"]
TINY_DECODE = ["--layers", "2", "--width", "16", "--heads", "2", "--rounds", "1"]


def bench(folder, *arguments):
    """The rows that the command wrote, and what it printed."""
    out = folder / "rows.json"
    result = runner.invoke(cli.app, ["bench", *arguments, "--json", str(out)])
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text(), parse_constant=_refuse), result.output


def _refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["step", *TINY, "--heads", "2", "--schemes", "standard,delta"], ["standard", "delta"]),
        (["op", *TINY], ["grouped", "naive"]),
        (["decode", *TINY_DECODE, "--schemes", ",".join(SCHEMES)], SCHEMES),
    ],
)
def test_times(arguments, expected, tmp_path):
    rows, _ = bench(tmp_path, *arguments)
    assert [row["what"] for row in rows] == expected
    assert rows[0]["ratio"] == 1
    assert all(row["value"] > 0 and row["low"] <= row["ratio"] <= row["high"] for row in rows)


def test_tokens_a_second(tmp_path):
    rows, output = bench(tmp_path, "decode", *TINY_DECODE, "--schemes", "standard")
    assert "tokens/s" in output
    for row in rows:
        assert row["tokens_per_second"] == pytest.approx(1000 / row["value"])


def test_several_depths_have_an_exponent_and_a_picture(tmp_path):
    picture = tmp_path / "op.png"
    shape = [*TINY, "--layers", "2,4,8"]
    rows, output = bench(tmp_path, "op", *shape, "--plot", str(picture))
    assert [(row["layers"], row["what"]) for row in rows[6:]] == [
        (None, "grouped"),
        (None, "naive"),
    ]
    assert {row["unit"] for row in rows[6:]} == {"exponent"}
    assert "growth" in output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_memory_grows_with_depth_alone(tmp_path):
    """What `dares bench memory` is for, at a size that takes a second."""
    shape = ["--layers", "4,8,16", "--width", "256", "--batch", "1", "--tokens", "16"]
    rows, _ = bench(tmp_path, "memory", *shape, "--no-peak", "--schemes", ",".join(SCHEMES))
    assert {row["measure"] for row in rows} == {"kept for the backward"}
    for row in rows:
        if row["unit"] == "exponent":
            assert row["value"] < 1.05, row
        elif row["layers"] == 16:
            assert row["ratio"] < 1.20, row


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_has_peaks(tmp_path, monkeypatch):
    """Ratios to standard of the same depth and measure; the measuring itself is tested apart."""
    sizes = {"standard": 100, "delta": 125}
    monkeypatch.setattr(run, "peak_growth", lambda shape, scheme: sizes[scheme] * shape.layers**2)
    shape = ["--layers", "2,4", "--width", "16", "--heads", "2", "--batch", "1", "--tokens", "4"]
    rows, _ = bench(tmp_path, "memory", *shape, "--schemes", "standard,delta")
    peaks = [row for row in rows if row["measure"] == "peak memory of a step"]
    assert [row["ratio"] for row in peaks[:4]] == [1, 1.25, 1, 1.25]
    assert [row["value"] for row in peaks[4:]] == pytest.approx([2, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["step", "--layers", "12,x"], "--layers must be whole numbers"),
        (["step", "--layers", "0"], "--layers must be whole numbers"),
        (["op", "--scheme", "delt"], "unknown preset 'delt'; did you mean 'delta'"),
        (["op", "--plot", "op.pdf"], "end its name in .png"),
        (["op", "--json", "no/such/folder/op.json"], "is in a folder that does not exist"),
    ],
)
def test_mistakes(arguments, message):
    result = runner.invoke(cli.app, ["bench", *arguments])
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)
