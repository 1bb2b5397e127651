"""The page on evaluation says what the code does."""

from pathlib import Path

from dares.evals import bootstrap, pairing, perplexity, texts
from dares.evals.local import LOCAL
from dares.evals.paper8 import PAPER8

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()


def test_metrics_and_splits():
    for name, task in PAPER8.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        _, metric, _, split = (cell.strip() for cell in row.strip("|").split("|"))
        assert metric.replace(":", ",").split(",")[0] == task.metric
        assert [split] == (list(LOCAL[name].splits) if name in LOCAL else ["test"])


def test_figures():
    assert f"fewer than {pairing.ENOUGH_DOCUMENTS} documents" in PAGE
    assert f"about {texts.PIECE:,} characters" in PAGE
    assert f"{bootstrap.RESAMPLES:,} resamples" in PAGE
    assert f"({perplexity.DEFAULT_WINDOW:,} or the model's positions" in PAGE
