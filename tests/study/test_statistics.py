"""The statistics on data whose answers are known: by hand, and in two thousand studies."""

import itertools
import math

import numpy as np
import pytest

from dares.evals.student import student_p
from dares.study.statistics import estimate, holm, paired_difference

STUDIES = 2000


def test_an_interval_by_hand():
    found = estimate([1.0, 2.0, 3.0, 4.0])  # s = sqrt(5/3), se = 0.6455, t = 3.182
    assert found.mean == 2.5
    assert found.high - 2.5 == pytest.approx(3.18245 * 0.645497, abs=1e-4)
    assert 2.5 - found.low == pytest.approx(found.high - 2.5)
    assert found.excludes_zero
    assert not estimate([-1.0, 2.0, 3.0]).excludes_zero


def test_one_seed_has_no_interval():
    found = paired_difference([2.0], [1.5])
    assert (found.estimate.low, found.estimate.high, found.t_p) == (None, None, None)
    assert not found.estimate.excludes_zero
    assert found.sign_flip_p == 1
    with pytest.raises(ValueError, match="at least one value"):
        estimate([])


def test_a_paired_difference_by_hand():
    found = paired_difference([5.1, 5.0, 5.3], [5.2, 5.3, 5.5])
    assert found.estimate.mean == pytest.approx(-0.2)
    t = -0.2 / (0.1 / math.sqrt(3))
    assert found.t_p == pytest.approx(student_p(t, 2))
    assert found.t_p == pytest.approx(1 - abs(t) / math.sqrt(2 + t * t))  # closed form of 2 degrees
    assert found.sign_flip_p == 0.25  # the least that three seeds allow


@pytest.mark.parametrize(("shift", "p"), [(0.0, 1.0), (0.5, 0.0)])
def test_seeds_that_agree_to_the_last_bit(shift, p):
    assert paired_difference([1 + shift, 2 + shift], [1, 2]).t_p == pytest.approx(p)


def test_holm_by_hand_and_against_its_definition():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == {
        "a": pytest.approx(0.03),
        "c": pytest.approx(0.06),
        "b": pytest.approx(0.06),
    }
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}
    # rejected at level x: all up to the first p that is above x / (m - k + 1)
    rng = np.random.default_rng(0)
    for _ in range(50):
        ps = {str(i): float(p) for i, p in enumerate(rng.random(5) ** 3)}
        corrected = holm(ps)
        for level in (0.01, 0.05, 0.3):
            ordered = sorted(ps.items(), key=lambda item: item[1])
            kept = itertools.takewhile(
                lambda pair, level=level: pair[1][1] <= level / (5 - pair[0]), enumerate(ordered)
            )
            assert {n for n, p in corrected.items() if p <= level} == {n for _, (n, _) in kept}


def simulated(seeds, *, effect=0.0, seed=1):
    """Losses of two variants whose seeds share most of their noise: [studies, 2, seeds]."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 0.05, (STUDIES, 1, seeds))
    losses = 5.0 + shared + rng.normal(0, 0.02, (STUDIES, 2, seeds))
    losses[:, 1] += effect
    return losses


@pytest.mark.parametrize("seeds", [3, 4, 8])
def test_coverage_of_the_intervals(seeds):
    means = differences = 0
    for base, other in simulated(seeds, effect=0.03):
        found = estimate(base)
        means += found.low <= 5.0 <= found.high
        found = paired_difference(other, base).estimate
        differences += found.low <= 0.03 <= found.high
    assert 0.93 <= means / STUDIES <= 0.97
    assert 0.93 <= differences / STUDIES <= 0.97


@pytest.mark.parametrize("seeds", [3, 4, 8])
def test_p_values_are_uniform_under_the_null(seeds):
    found = [paired_difference(other, base) for base, other in simulated(seeds, seed=2)]
    ps = np.sort([each.t_p for each in found])
    places = np.arange(1, STUDIES + 1) / STUDIES
    distance = max(np.abs(ps - places).max(), np.abs(ps - places + 1 / STUDIES).max())
    assert distance < 1.63 / math.sqrt(STUDIES)  # Kolmogorov and Smirnov's 1 % bound
    # the permutation's p takes the values 2k / 2^n, each as often as the next
    flips = np.array([each.sign_flip_p for each in found])
    for level in (0.25, 0.5, 0.75):
        spread = math.sqrt(level * (1 - level) / STUDIES)
        assert abs((flips <= level).mean() - level) < 3.5 * spread


def test_power_where_there_is_an_effect():
    found = [paired_difference(other, base) for base, other in simulated(6, effect=-0.06)]
    named = [each.estimate.excludes_zero and each.estimate.mean < 0 for each in found]
    assert np.mean(named) > 0.9
    assert np.mean([each.sign_flip_p <= 2 / 64 for each in found]) > 0.9
