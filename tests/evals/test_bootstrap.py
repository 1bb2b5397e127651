"""Intervals and p-values on data whose answers are known. Seeds are fixed."""

import numpy as np
import pytest

from dares.evals.bootstrap import interval, resampled_sums, sign_flip_p


def covered(draw, truth, units, studies=1000, resamples=800):
    """The share of simulated studies whose 95 % interval of the mean holds the truth."""
    random = np.random.default_rng(0)
    hits = 0
    for study in range(studies):
        values = draw(random, units)
        means = resampled_sums(values[:, None], resamples=resamples, seed=study)[:, 0] / units
        low, high = interval(means, units)
        hits += low <= truth <= high
    return hits / studies


@pytest.mark.parametrize("units", [12, 100])
def test_interval_covers_95_percent_of_normal_differences(units):
    share = covered(lambda random, n: random.normal(0.3, 1, n), 0.3, units)
    assert 0.93 <= share <= 0.97


def test_interval_covers_95_percent_of_item_differences():
    """Items of a task: +1, 0 or -1."""
    share = covered(lambda r, n: r.choice([-1.0, 0.0, 1.0], n, p=[0.1, 0.7, 0.2]), 0.1, 150)
    assert 0.93 <= share <= 0.97


def test_interval_of_a_ratio_covers():
    """Documents of different length: nats per token, resampled with their tokens."""
    random = np.random.default_rng(1)
    hits, studies, units = 0, 1000, 60
    for study in range(studies):
        tokens = random.integers(50, 500, units).astype(float)
        nats = tokens * random.normal(0.02, 0.05, units)
        columns = np.column_stack([nats, tokens])
        sums = resampled_sums(columns, resamples=800, seed=study)
        low, high = interval(sums[:, 0] / sums[:, 1], units)
        hits += low <= 0.02 <= high
    assert 0.93 <= hits / studies <= 0.97


def test_p_is_uniform_under_the_null():
    random = np.random.default_rng(2)
    ps = [sign_flip_p(random.normal(0, 1, 40), resamples=499, seed=study) for study in range(2000)]
    for level in (0.01, 0.05, 0.25, 0.5, 0.75):
        expected = np.sqrt(level * (1 - level) / len(ps))
        assert np.mean(np.array(ps) <= level) == pytest.approx(level, abs=4 * expected)


def test_p_is_small_where_there_is_a_difference():
    random = np.random.default_rng(3)
    assert sign_flip_p(random.normal(1, 1, 60)) < 0.001


def test_p_of_few_units_is_exact():
    assert sign_flip_p(np.array([1.0, 2.0, 3.0, 4.0])) == 2 / 16
    assert sign_flip_p(np.array([1.0, 2.0, 3.0, -4.0])) == 14 / 16  # |2| is reached by all but 2
    assert sign_flip_p(np.array([0.1, 0.2, -0.3])) == 1.0  # the sum is zero but for rounding


def test_p_of_no_difference_is_one():
    assert sign_flip_p(np.zeros(50)) == 1.0


def test_exact_and_drawn_signs_agree():
    differences = np.random.default_rng(4).normal(0.4, 1, 12)
    exact = sign_flip_p(differences, resamples=4096)
    drawn = sign_flip_p(differences, resamples=4095)
    assert drawn == pytest.approx(exact, abs=0.03)
    assert drawn != exact


def test_resamples_are_those_of_the_seed_whatever_the_columns():
    values = np.random.default_rng(5).normal(size=(30, 3))
    all_three = resampled_sums(values, resamples=50, seed=7)
    for column in range(3):
        alone = resampled_sums(values[:, [column]], resamples=50, seed=7)
        assert alone[:, 0] == pytest.approx(all_three[:, column])
    assert not np.allclose(all_three, resampled_sums(values, resamples=50, seed=8))
    assert not np.allclose(all_three, resampled_sums(values, resamples=50, seed=[7, 1]))


def test_each_resample_has_as_many_units(monkeypatch):
    monkeypatch.setattr("dares.evals.bootstrap._CHUNK", 100)  # several pieces
    assert (resampled_sums(np.ones((30, 1)), resamples=50) == 30).all()


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2 units to resample, got 1"):
        interval(np.zeros(10), 1)
    with pytest.raises(ValueError, match="level must be a share between 0 and 1, got 95"):
        interval(np.zeros(10), 5, level=95)
