"""Ranks over settings, by hand and against the library that draws them."""

import math

import pytest

from ktpfl_pipeline.analysis.ranking import common, ranking

THREE = {"a": 0.9, "b": 0.8, "c": 0.7}


def test_average_ranks_and_friedmans_test_by_hand():
    """Rank sums 4, 5.5 and 8.5 of three settings; with a tie the statistic is divided by 1 - 6 / (3 (27 - 3))."""
    found = ranking({"x": THREE, "y": {"a": 0.5, "b": 0.6, "c": 0.4}, "z": {"c": 0.1, "a": 0.3, "b": 0.1}})
    assert found.methods == ["a", "b", "c"]
    assert found.ranks == pytest.approx([4 / 3, 5.5 / 3, 8.5 / 3])
    sums = 4**2 + 5.5**2 + 8.5**2
    statistic = (12 / (3 * 3 * 4) * sums - 3 * 3 * 4) / (1 - 6 / (3 * (27 - 3)))
    assert found.p == pytest.approx(math.exp(-statistic / 2))  # of χ² with two degrees of freedom


def test_nemenyis_critical_difference():
    """Demšar's Table 5: q is 2.343 for three methods, 2.569 for four."""
    three = ranking(dict.fromkeys("xyz", THREE))
    assert three.critical == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 3)), abs=2e-3)
    four = ranking({setting: {**THREE, "d": 0.1} for setting in "wxyz"})
    assert four.critical == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 4)), abs=2e-3)


def test_only_what_all_settings_have_is_ranked():
    with_more = {"x": {**THREE, "d": 1.0}, "y": THREE, "z": THREE}
    assert common(with_more) == ["a", "b", "c"]
    assert ranking(with_more).ranks == [1, 2, 3]


@pytest.mark.parametrize(
    "few", [{"x": THREE, "y": THREE}, {"x": THREE, "y": THREE, "z": {"a": 0.9, "b": 0.8, "d": 0.7}}]
)
def test_too_few_settings_or_methods(few):
    assert ranking(few) is None
