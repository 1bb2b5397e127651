"""Peak memory, measured in processes of their own."""

import sys

import pytest

from dares.bench import peak
from dares.bench.run import kept_bytes
from dares.bench.workloads import Shape

SHAPE = Shape(layers=2, width=64, heads=2, batch=4, tokens=256, vocabulary=512)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_holds_what_is_kept():
    grown, kept = peak.peak_growth(SHAPE, "delta_block"), kept_bytes(SHAPE, "delta_block")
    assert kept < grown < 2 * kept


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_child_that_fails_says_why():
    with pytest.raises(ValueError, match="measures delt with 2 layers ended with code 1: .*'delt'"):
        peak.peak_growth(SHAPE, "delt")


def test_systems_without_proc_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(peak, "CLEAR", tmp_path / "missing")
    with pytest.raises(ValueError, match="pass --no-peak"):
        peak.check_peak()
