"""Intervals and means, in closed form."""

import math

import pytest

from ktpfl_pipeline.analysis.statistics import (
    Difference,
    benign,
    difference,
    final,
    mean_over_clients,
    seeds_to_decide,
)


class TestInterval:
    def test_two_seeds_in_closed_form(self):
        """With one degree of freedom Student's distribution is Cauchy's: t = tan(0.95 π / 2)."""
        found = difference([0.05, 0.01])
        half = math.tan(0.95 * math.pi / 2) * 0.04 / 2**0.5 / 2**0.5
        assert (found.low, found.high) == (pytest.approx(0.03 - half), pytest.approx(0.03 + half))

    def test_three_seeds_in_closed_form(self):
        """With two, P(|T| < t) = t / √(t² + 2), so t² = 2 p² / (1 - p²)."""
        found = difference([0.11, 0.10, 0.09])
        half = math.sqrt(2 * 0.95**2 / (1 - 0.95**2)) * 0.01 / 3**0.5
        assert (found.low, found.high) == (pytest.approx(0.10 - half), pytest.approx(0.10 + half))
        assert found.sign == 1
        assert difference([-0.11, -0.10, -0.09]).sign == -1

    def test_a_difference_beyond_its_std_is_not_enough(self):
        """1 and 3: the mean of 2 exceeds the standard deviation of 1.4, and the interval is 2 ± 12.7."""
        assert difference([0.01, 0.03]).sign == 0

    def test_one_seed_and_none(self):
        assert difference([0.5]) == Difference(0.5, None, None, None, 1)
        assert difference([0.5]).sign == 0
        assert difference([]) is None

    def test_equal_with_every_seed(self):
        assert difference([0.0, 0.0, 0.0]) == Difference(0.0, 0.0, 0.0, 0.0, 3)
        assert difference([0.0, 0.0, 0.0]).sign == 0


class TestMeans:
    def test_adversaries_do_not_count(self):
        assert benign([0.5, 0.1, 0.7], [1]) == [0.5, 0.7]
        assert mean_over_clients([0.5, 0.1, 0.7], [1]) == pytest.approx(0.6)

    def test_every_seed_has_adversaries_of_its_own(self):
        found = final([[0.2, 0.4, 0.6], [0.4, 0.6, 0.8]], [[0], [2]], best=0.9)
        assert found.per_seed == pytest.approx([0.5, 0.5])
        assert found.per_client == pytest.approx([0.3, 0.5, 0.7])
        assert (found.worst_decile, found.client_std, found.seed_std) == pytest.approx((0.4, 0.1, 0.0))


def test_how_many_seeds_would_decide():
    """Mean and standard deviation are both a point: t(5) / √6 = 2.571 / 2.449 is above 1, t(6) / √7 = 0.92 below."""
    assert seeds_to_decide(difference([0.01 * (1 + 0.5**0.5), 0.01 * (1 - 0.5**0.5)])) == 7
    assert seeds_to_decide(difference([0.01, -0.01])) is None
    assert seeds_to_decide(difference([0.01])) is None
