"""Which candidates are tried: configured values first, all of few, the same again, no more than the budget."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ktpfl_pipeline.config.studies import Range
from ktpfl_pipeline.runs.search import RANDOM, search

LISTS: dict[str, Any] = {"weights": ["minmax", "direct"], "temperature": [1.0, 3.0]}
RANGE = {"rho": Range(low=0.1, high=10.0, log=True)}
WIDE: dict[str, Any] = {"a": list(range(10)), "b": list(range(10))}


def flat(values: dict[str, Any]) -> float:
    return 0.5


def peak(at: float) -> Callable[[dict[str, Any]], float]:
    """An accuracy that is highest at one value of ρ."""
    return lambda values: 1 / (1 + abs(values["rho"] - at))


class TestLists:
    def test_all_combinations_if_they_are_few_and_the_configured_one_first(self) -> None:
        start = {"weights": "direct", "temperature": 1.0}
        found = search(LISTS, start, 8, 0, flat)
        assert found[0] == start
        every = [dict(zip(LISTS, values, strict=True)) for values in itertools.product(*LISTS.values())]
        assert sorted(map(str, found)) == sorted(map(str, every))

    def test_configured_values_that_no_list_has_are_a_candidate_too(self) -> None:
        found = search({"epochs": [1, 5]}, {"epochs": None}, 8, 0, flat)
        assert found == [{"epochs": None}, {"epochs": 1}, {"epochs": 5}]

    def test_some_if_they_are_many(self) -> None:
        found = search(WIDE, {"a": 3, "b": 3}, 6, 0, flat)
        assert found[0] == {"a": 3, "b": 3}
        assert len({str(values) for values in found}) == 6
        assert search(WIDE, {"a": 3, "b": 3}, 6, 0, flat) == found
        assert search(WIDE, {"a": 3, "b": 3}, 6, 1, flat) != found

    def test_one_trial_is_the_configured_values(self) -> None:
        assert search(LISTS, {"weights": "minmax", "temperature": 3.0}, 1, 0, flat) == [
            {"weights": "minmax", "temperature": 3.0}
        ]

    def test_nothing_to_choose_is_one_candidate(self) -> None:
        assert search({}, {}, 8, 0, flat) == [{}]


class TestRanges:
    def test_whole_ends_around_a_configured_fraction_are_of_fractions(self) -> None:
        found = search({"a": Range(low=0, high=1)}, {"a": 0.5}, 8, 0, lambda values: 1 - values["a"])
        assert len(found) == 8
        assert any(0 < values["a"] < 1 for values in found[1:])

    @pytest.mark.parametrize("start", [{"rho": 2.0}, {"rho": None}, {"rho": 50.0}], ids=str)
    def test_the_budget_is_spent_inside_the_range(self, start: dict[str, Any]) -> None:
        """Configured values may be outside, or no number at all."""
        found = search(RANGE, start, 8, 0, lambda values: 0.5)
        assert (found[0], len(found)) == (start, 8)
        assert all(0.1 <= values["rho"] <= 10 for values in found[1:])

    def test_numbers_can_be_read(self) -> None:
        """Three digits, as one would write them under conf/."""
        found = [values["rho"] for values in search(RANGE, {"rho": 2.0}, 8, 0, flat)]
        assert all(float(f"{rho:.3g}") == rho for rho in found)
        assert len(set(found)) == 8

    def test_no_rounding_leads_out_of_a_range(self) -> None:
        space = {"rho": Range(low=0.99994, high=0.99996)}
        found = [values["rho"] for values in search(space, {"rho": 2.0}, 4, 0, flat)[1:]]
        assert found
        assert all(0.99994 <= rho <= 0.99996 for rho in found)

    def test_by_ratio(self) -> None:
        """With log, half of the random draws from 0.1 to 10 are below 1; without, a tenth."""
        below = {}
        for log in (True, False):
            space = {"rho": Range(low=0.1, high=10.0, log=log)}
            found = [search(space, {"rho": None}, 4, seed, flat)[1:] for seed in range(10)]
            below[log] = sum(values["rho"] < 1 for draws in found for values in draws)
        assert below[True] >= 10 > below[False]

    def test_whole_numbers_stay_whole_and_none_comes_twice(self) -> None:
        found = search({"k": Range(low=1, high=3)}, {"k": 2}, 12, 0, flat)
        assert all(isinstance(values["k"], int) for values in found)
        assert sorted(values["k"] for values in found) == [1, 2, 3]

    def test_a_list_beside_a_range(self) -> None:
        space = {**RANGE, "weights": ["minmax", "direct"]}
        found = search(space, {"rho": 2.0, "weights": "minmax"}, 6, 0, flat)
        assert len(found) == 6
        assert {values["weights"] for values in found} <= {"minmax", "direct"}


class TestAccuraciesDecide:
    def test_later_candidates_follow_them(self) -> None:
        """The first, random ones are the same; then TPE goes where it was better."""
        low, high = (search(RANGE, {"rho": 1.0}, 24, 0, peak(at)) for at in (0.2, 8.0))
        assert low[:RANDOM] == high[:RANDOM]
        mean = [sum(values["rho"] for values in found[12:]) / 12 for found in (low, high)]
        assert mean[0] < 2 < mean[1]

    def test_a_candidate_that_diverged_is_the_worst_and_no_end(self) -> None:
        diverging = search(RANGE, {"rho": 1.0}, 24, 0, lambda values: None if values["rho"] > 1 else 0.5)
        assert len(diverging) == 24
        assert sum(values["rho"] <= 1 for values in diverging[12:]) > 6


class TestAgain:
    def test_the_same(self) -> None:
        assert search(RANGE, {"rho": 1.0}, 12, 5, peak(3)) == search(RANGE, {"rho": 1.0}, 12, 5, peak(3))
        assert search(RANGE, {"rho": 1.0}, 12, 5, peak(3)) != search(RANGE, {"rho": 1.0}, 12, 6, peak(3))

    def test_interrupted(self) -> None:
        """What was asked for before the interruption is asked for again, so finished runs are found."""
        asked: list[dict[str, Any]] = []

        def evaluate(values: dict[str, Any]) -> float:
            asked.append(values)
            if len(asked) == 9:
                raise KeyboardInterrupt
            return peak(3)(values)

        with pytest.raises(KeyboardInterrupt):
            search(RANGE, {"rho": 1.0}, 12, 5, evaluate)
        assert search(RANGE, {"rho": 1.0}, 12, 5, peak(3))[:9] == asked

    @pytest.mark.parametrize(
        ("space", "start"),
        [(RANGE, {"rho": 1.0}), (WIDE, {"a": 3, "b": 3}), (LISTS, {"weights": "x", "temperature": 1})],
    )
    def test_more_trials_are_added_to_those_that_were(self, space: dict[str, Any], start: dict[str, Any]) -> None:
        few, more = (search(space, start, trials, 5, lambda values: float(len(str(values)))) for trials in (4, 12))
        assert len(more) == min(12, 5 if space is LISTS else 12)
        assert all(values in more for values in few)
