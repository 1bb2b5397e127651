"""Student's t against printed tables and the integral of its density."""

import math

import numpy as np
import pytest

from dares.evals.student import student_p, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # from the printed tables, 97.5 %
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (7, 2.365), (10, 2.228), (60, 2.000)],
)
def test_students_table(freedom, quantile):
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=6e-4)
    assert student_p(quantile, freedom) == pytest.approx(0.05, abs=6e-5)
    assert student_p(-quantile, freedom) == student_p(quantile, freedom)


@pytest.mark.parametrize("freedom", [1, 2, 3, 6])
def test_students_p_is_the_densitys_integral(freedom):
    grid = np.linspace(0, 1.3, 200_001)
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    density = scale * (1 + grid**2 / freedom) ** (-(freedom + 1) / 2)
    inside = (density[1:] + density[:-1]).sum() * (grid[1] - grid[0])
    assert student_p(1.3, freedom) == pytest.approx(1 - inside, abs=1e-9)
    assert student_p(0, freedom) == 1
    assert student_p(math.inf, freedom) == pytest.approx(0, abs=1e-12)
