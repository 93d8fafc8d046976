"""Intervals and means, in closed form."""

import math

import pytest
from cases import case

from ktpfl_pipeline.analysis.statistics import (
    Difference,
    benign,
    difference,
    equivalence,
    final,
    holm,
    mean_over_clients,
    seeds_for,
    step_down,
)


class TestInterval:
    def test_two_seeds_have_a_deviation_and_no_interval(self):
        """Its ends would be 0.03 ± 12.7 · 0.02."""
        found = difference([0.05, 0.01])
        assert (found.mean, found.std) == (pytest.approx(0.03), pytest.approx(0.04 / 2**0.5))
        assert (found.low, found.high, found.ends, found.p, found.sign) == (None, None, None, None, 0)
        assert difference([0.5, 0.5]).sign == 0

    def test_three_seeds_in_closed_form(self):
        """With two, P(|T| < t) = t / √(t² + 2), so t² = 2 p² / (1 - p²)."""
        found = difference([0.11, 0.10, 0.09])
        half = math.sqrt(2 * 0.95**2 / (1 - 0.95**2)) * 0.01 / 3**0.5
        assert (found.low, found.high) == (pytest.approx(0.10 - half), pytest.approx(0.10 + half))
        assert found.sign == 1
        assert difference([-0.11, -0.10, -0.09]).sign == -1

    def test_a_difference_beyond_its_std_is_not_enough(self):
        """1, 3 and 5: the mean of 3 exceeds the standard deviation of 2, and the interval is 3 ± 4.97."""
        assert difference([0.01, 0.03, 0.05]).sign == 0

    def test_one_seed_and_none(self):
        assert difference([0.5]) == Difference(0.5, None, None, None, 1)
        assert difference([0.5]).sign == 0
        assert difference([]) is None

    def test_equal_with_every_seed(self):
        assert difference([0.0, 0.0, 0.0]) == Difference(0.0, 0.0, 0.0, 0.0, 3, p=1.0)
        assert difference([0.0, 0.0, 0.0]).sign == 0

    def test_equal_but_for_the_order_of_a_sum(self):
        rounded_off = 0.1 + 0.2 - 0.3
        assert rounded_off > 0
        assert difference([rounded_off, rounded_off]) == difference([0.0, 0.0])
        assert difference([rounded_off] * 3).sign == 0

    def test_a_mean_of_zero_is_zero(self):
        """The sum of these three is -3e-17 in float64."""
        assert difference([0.3, -0.1, -0.2]).mean == 0


def at(p):
    """Return t with P(|T| > t) = p, with two degrees of freedom."""
    return 2**0.5 * (1 - p) / math.sqrt(1 - (1 - p) ** 2)


P = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}


class TestHolm:
    @pytest.fixture
    def found(self):
        """Three seeds, a mean and √3 around it: t is the mean, and P(|T| > t) = 1 - t / √(t² + 2)."""
        return {name: difference([(mean := at(p)) - 3**0.5, mean, mean + 3**0.5]) for name, p in P.items()}

    def test_a_hand_example(self, found):
        """0.005 ≤ 0.05 / 4 and 0.01 ≤ 0.05 / 3, but 0.03 > 0.05 / 2, so that 0.04 ≤ 0.05 is not tested."""
        assert {name: each.p for name, each in found.items()} == pytest.approx(P)
        assert [each.sign for each in found.values()] == [1, 1, 1, 1]
        corrected = holm(found)
        assert list(corrected) == list(found)
        assert {name: each.sign for name, each in corrected.items()} == {"a": 1, "b": 0, "c": 0, "d": 1}
        assert {name: each.p for name, each in corrected.items()} == pytest.approx(
            {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
        )

    def test_an_interval_has_the_level_of_its_test(self, found):
        for name, divisor in (("d", 4), ("a", 3), ("c", 2), ("b", 2)):
            with case(name):
                each = holm(found)[name]
                half = at(0.05 / divisor)
                assert (each.low, each.high) == (pytest.approx(each.mean - half), pytest.approx(each.mean + half))
                assert (each.family, each.confidence) == (4, pytest.approx(1 - 0.05 / divisor))

    @pytest.mark.parametrize("p", [0.02, 0.001])
    def test_equal_p_values_have_the_level_of_the_first_test(self, p):
        """Of three tests, both are tested at 5 % / 3, in whatever order they come: 0.02 fails there."""
        one, other, last = (difference([t - 3**0.5, t, t + 3**0.5]) for t in (at(p), -at(p), at(0.04)))
        corrected = holm({"one": one, "other": other, "last": last})
        assert corrected == holm({"last": last, "other": other, "one": one})
        assert corrected["one"].confidence == corrected["other"].confidence == pytest.approx(1 - 0.05 / 3)
        assert [corrected[name].sign for name in ("one", "other")] == ([1, -1] if p < 0.05 / 3 else [0, 0])

    def test_alone_nothing_changes(self):
        alone = difference([0.05, 0.01, 0.02])
        assert holm({"x": alone})["x"].ends == pytest.approx(alone.ends)

    def test_what_cannot_be_tested_does_not_count(self):
        one, two, alone = difference([0.5]), difference([0.5, 0.5]), difference([0.11, 0.10, 0.09])
        corrected = holm({"one seed": one, "two": two, "none": None, "three": alone})
        assert (corrected["one seed"], corrected["two"], corrected["none"]) == (one, two, None)
        assert (corrected["three"].family, corrected["three"].ends) == (1, pytest.approx(alone.ends))

    def test_the_seeds_for_an_interval_are_of_the_corrected_test(self):
        """Of two alike, the first is tested at 97.5 %: t(n - 1) / √n is 1.004 with eight seeds, 0.92 with nine."""
        alike = difference([0.02, 0.01, 0.0])
        assert seeds_for(holm({"a": alike, "b": alike})["a"], 0.01) == 9


class TestEquivalence:
    @pytest.mark.parametrize("mean", [0.0, 1.0, -1.0])
    @pytest.mark.parametrize("p", [0.01, 0.05, 0.4])
    def test_a_hand_example(self, mean, p):
        """Three seeds, √3 around the mean: the distance to the nearer margin is t, and P(T > t) is p."""
        found = difference([mean - 3**0.5, mean, mean + 3**0.5])
        assert equivalence(found, abs(mean) + at(2 * p)) == pytest.approx(p)

    def test_it_is_the_90_percent_interval(self):
        """These differences have the mean 0.1 and the deviation 0.18708; t(4) is 2.13185 at 95 %."""
        found = difference([0.1, 0.3, -0.2, 0.2, 0.1])
        end = 0.1 + 2.1318468 * 0.1870829 / 5**0.5
        assert equivalence(found, end) == pytest.approx(0.05, abs=1e-6)
        assert equivalence(found, end + 0.01) < 0.05 < equivalence(found, end - 0.01)

    def test_outside_the_margin_or_without_a_spread(self):
        assert equivalence(difference([0.6, 0.7, 0.8]), 0.5) > 0.9
        assert equivalence(difference([0.1] * 3), 0.5) == 0.0
        assert equivalence(difference([0.5] * 3), 0.5) == 1.0
        assert equivalence(difference([0.1] * 2), 0.5) is None

    def test_corrected_like_other_p_values(self):
        assert step_down({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
            {"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06}
        )
        assert step_down({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}


class TestMeans:
    def test_adversaries_do_not_count(self):
        assert benign([0.5, 0.1, 0.7], [1]) == [0.5, 0.7]
        assert mean_over_clients([0.5, 0.1, 0.7], [1]) == pytest.approx(0.6)

    def test_every_seed_has_adversaries_of_its_own(self):
        clients = [benign([0.2, 0.4, 0.6], [0]), benign([0.4, 0.6, 0.8], [2])]
        found = final(clients, [0.3, 0.5, 0.7], best=0.9)
        assert found.per_seed == pytest.approx([0.5, 0.5])
        assert (found.worst_decile, found.client_std, found.seed_std) == pytest.approx((0.4, 0.1, 0.0))


def test_how_many_seeds_give_a_narrow_interval():
    """The standard deviation is a point: t(5) / √6 = 2.571 / 2.449 is above 1, t(6) / √7 = 0.92 below."""
    assert seeds_for(difference([0.02, 0.01, 0.0]), 0.01) == 7
    assert seeds_for(difference([0.01, 0.0, -0.01]), 0.01) == 7, "whatever the mean"
    assert seeds_for(difference([0.03, 0.01]), 0.01) == 11  # a deviation of 1.41: t(10) / √11 is 0.67
    assert seeds_for(difference([0.3, -0.3, 0.0]), 0.01) is None
    assert seeds_for(difference([0.01]), 0.01) is None
