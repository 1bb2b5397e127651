"""Pure functions on hand-made weights: one-hot, uniform, a single source."""

import math

import pytest
import torch

from dares.routing import metrics

ONE_HOT = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
UNIFORM = torch.full((4,), 0.25, dtype=torch.float64)
SINGLE = torch.ones(1, dtype=torch.float64)
HALVES = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("weights", "largest", "entropy", "normalised", "effective", "used"),
    [
        (ONE_HOT, 1, 0, 0, 1, 0.25),
        (UNIFORM, 0.25, math.log(4), 1, 4, 1),
        (SINGLE, 1, 0, 0, 1, 1),
        (HALVES, 0.5, math.log(2), 0.5, 2, 0.5),
    ],
)
def test_weights_made_by_hand(weights, largest, entropy, normalised, effective, used):
    found = [
        metrics.largest_weight(weights),
        metrics.entropy(weights),
        metrics.normalised_entropy(weights),
        metrics.effective_sources(weights),
        metrics.utilisation(weights),
    ]
    assert [each.item() for each in found] == pytest.approx(
        [largest, entropy, normalised, effective, used], abs=1e-12
    )


def test_leading_axes_stay():
    weights = torch.rand(2, 3, 5).softmax(-1)
    for measure in (metrics.largest_weight, metrics.entropy, metrics.normalised_entropy):
        assert measure(weights).shape == (2, 3)


def test_sharpness_is_the_mean_over_the_sites_that_choose():
    routing = (None, ONE_HOT.expand(2, 3, 4), UNIFORM.expand(2, 3, 4))
    by_site = metrics.sharpness_by_site(routing)
    assert by_site[0] is None
    assert by_site[1] == metrics.Sharpness(1.0, 0.0)
    assert by_site[2].largest == 0.25
    mean = metrics.sharpness(routing)
    assert mean.largest == pytest.approx(0.625)
    assert mean.entropy == pytest.approx(math.log(4) / 2)
    assert metrics.sharpness((None, None)) is None


def test_parallel_sources_span_one_direction():
    bank = torch.tensor([[1.0, 2.0], [2.0, 4.0], [-3.0, -6.0]], dtype=torch.float64)
    gram = bank @ bank.T
    assert metrics.effective_rank(gram).item() == pytest.approx(1, abs=1e-6)
    assert metrics.neighbour_cosines(gram).tolist() == pytest.approx([1, -1])


def test_sources_at_right_angles_span_as_many_as_there_are():
    gram = torch.diag(torch.tensor([1.0, 100.0, 1e-4], dtype=torch.float64))
    assert metrics.effective_rank(gram).item() == pytest.approx(3)
    assert metrics.neighbour_cosines(gram).tolist() == [0, 0]


def test_a_zero_source_is_across_all_others():
    gram = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert metrics.cosines(gram).tolist() == [[1, 0], [0, 0]]
    assert metrics.effective_rank(gram).isfinite()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1),
        ([1, 1, 2], [1, 2, 3], math.sqrt(3) / 2),  # ties share their mean rank: 1.5, 1.5, 3
        ([1, 1, 1], [1, 2, 3], None),
        ([1], [2], None),
    ],
)
def test_rank_correlation(first, second, expected):
    found = metrics.rank_correlation(first, second)
    assert found is None if expected is None else found == pytest.approx(expected)
