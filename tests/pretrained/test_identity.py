"""The figures of a conversion, against distributions whose figures are known."""

import math
from types import SimpleNamespace

import pytest
import torch

from dares.pretrained.identity import compare_logits, mean_loss, write_logits

ROWS = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1]])


def says(probability):
    """A model of two words that gives the second one that probability, whatever it reads."""
    row = torch.tensor([1 - probability, probability]).log()

    def model(input_ids, use_cache):
        return SimpleNamespace(logits=row.expand(*input_ids.shape, 2).clone())

    return model


def test_figures(tmp_path):
    before, after = 0.5, 0.8
    write_logits(says(before), ROWS, tmp_path / "logits")
    found = compare_logits(says(after), ROWS, tmp_path / "logits")
    assert found.tokens == 10
    # the next tokens are seven of the second word and one of the first
    for loss, p in ((found.loss_before, before), (found.loss_after, after)):
        assert loss == pytest.approx(-(7 * math.log(p) + math.log(1 - p)) / 8, rel=1e-6)
    kl = before * math.log(before / after) + (1 - before) * math.log((1 - before) / (1 - after))
    assert found.kl == pytest.approx(kl, rel=1e-6)
    difference = abs(math.log(1 - after) - math.log(1 - before))
    assert found.difference == pytest.approx(difference, rel=1e-6)
    assert found.relative_difference == pytest.approx(difference / -math.log(before), rel=1e-6)
    assert mean_loss(says(after), ROWS) == pytest.approx(found.loss_after)


def test_nothing_changed(tmp_path):
    write_logits(says(0.3), ROWS, tmp_path / "logits")
    found = compare_logits(says(0.3), ROWS, tmp_path / "logits")
    assert found.difference == found.relative_difference == found.kl == 0
    assert found.loss_before == found.loss_after
