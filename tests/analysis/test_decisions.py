"""Which client should collaborate, with the uncertainty over seeds and over its samples."""

import math
from dataclasses import replace
from statistics import variance
from typing import Any

import pytest
from finished_runs import make_run, under

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.decisions import ALONE, COLLABORATE, OPEN, decisions
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, summarize
from ktpfl_pipeline.analysis.statistics import (
    SampledDifference,
    answers_variance,
    difference,
    jackknife_variance,
    most_variance,
    on_samples,
)

NAMES = ["north", "south", "west"]
TEST = 200
SIZES = {"train": [500] * 3, "validation": [100] * 3, "test": [TEST] * 3}
AFTER = "after_transfer"


def answers(accuracy: float) -> str:
    """The first samples are recognized, the others are not."""
    return "1" * round(accuracy * TEST) + "0" * round((1 - accuracy) * TEST)


def made(method: str, *by_seed: tuple[float, ...], **changes: Any) -> MethodResult:
    weights = [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]] if method == "kt_pfl" else None
    counts = [[100, 700], [800, 0], [500, 300]]
    return summarize(
        [
            replace(
                make_run(method, seed, [values], coefficients=weights, label_counts=counts),
                **{"names": NAMES, "samples": SIZES, "correct": [*map(answers, values)], "tested": ["a", "b", "c"]}
                | changes,
            )
            for seed, values in enumerate(by_seed)
        ],
        {},
    )


KT_PFL = (0.9, 0.6, 0.81), (0.91, 0.6, 0.79), (0.89, 0.6, 0.80)
LOCAL = (0.7, 0.8, 0.80), (0.7, 0.8, 0.80), (0.7, 0.8, 0.80)


class TestDecision:
    def test_each_client_has_its_own(self) -> None:
        found = decisions(made("kt_pfl", *KT_PFL), made("local", *LOCAL), AFTER)
        assert [each.client for each in found] == ["north", "west", "south"]
        assert [each.decision for each in found] == [COLLABORATE, OPEN, ALONE]
        north = found[0]
        assert (north.samples, north.classes, north.test_samples) == (800, 2, TEST)
        assert (north.alone, north.together) == pytest.approx((0.7, 0.9))
        assert (north.difference.mean, north.difference.family) == (pytest.approx(0.2), 3)
        assert [*north.teachers] == ["north", "south", "west"]
        assert [*north.teachers.values()] == pytest.approx([0.6, 0.3, 0.1])

    def test_a_client_that_can_gain_no_point_stays_alone(self) -> None:
        """All answers are equal with both methods, on many samples."""
        sizes = {"train": [9], "validation": [0], "test": [20_000]}
        same = {"samples": sizes, "correct": ["10" * 10_000], "names": ["north"], "tested": ["a"]}
        one, other = (made(name, (0.5,), (0.5,), (0.5,), **same, coefficients=None) for name in ("fedmd", "local"))
        (found,) = decisions(one, other, AFTER)
        assert (found.decision, found.together - found.alone) == (ALONE, 0.0)

    def test_without_answers_the_accuracies_decide_and_without_sizes_nothing(self) -> None:
        pairs = [
            [made(name, *values, **changes) for name, values in (("kt_pfl", KT_PFL), ("local", LOCAL))]
            for changes in ({}, {"correct": []}, {"samples": {}})
        ]
        known, accuracies, unknown = (decisions(one, other, AFTER) for one, other in pairs)
        assert [each.decision for each in accuracies] == [COLLABORATE, OPEN, ALONE]
        widths = [
            each.difference.ends[1] - each.difference.ends[0]
            for each in (known[0], accuracies[0])
            if each.difference.ends
        ]
        assert widths[0] < widths[1]
        assert unknown == []

    def test_two_seeds_are_not_enough(self) -> None:
        found = decisions(made("kt_pfl", *KT_PFL[:2]), made("local", *LOCAL[:2]), AFTER)
        assert [each.decision for each in found] == [OPEN] * 3

    def test_clients_without_values_and_malicious_ones_are_left_out(self) -> None:
        kt_pfl = made("kt_pfl", *KT_PFL, adversaries=[1])
        stale = [
            replace(r, history=[replace(each, stale=[2]) for each in r.history]) for r in made("local", *LOCAL).runs
        ]
        comparison = Comparison([kt_pfl, summarize(stale, {})])
        assert [each.client for each in comparison.decisions] == ["north"]

    def test_the_best_method_that_sends_something_is_the_candidate(self) -> None:
        """Work-matched local training is better, but it is not collaboration."""
        matched = made("local_matched", *[(1.0, 1.0, 1.0)] * 3)
        silent = [replace(r, history=[replace(t, traffic={}) for t in r.history]) for r in matched.runs]
        others = [made("fedmd", *[(0.5, 0.5, 0.5)] * 3), made("kt_pfl", *KT_PFL), made("local", *LOCAL)]
        comparison = Comparison([summarize(silent, {}), *others])
        assert comparison.candidate is comparison.methods["kt_pfl"]
        assert Comparison([summarize(silent, {}), others[-1]]).decisions == []

    @pytest.mark.parametrize("known", [True, False])
    def test_another_headline_decides(self, known: bool) -> None:
        """The jackknife has a spread of 0.001 over ten groups; without it there is no interval."""

        def measured(result: MethodResult, auc: float) -> MethodResult:
            runs = [
                replace(
                    r,
                    history=[replace(t, measures={"auc": [auc + 0.001 * r.seed] * 3}) for t in r.history],
                    jackknife={"auc": [[auc, auc + 0.001 * (auc > 0.85)] * 5] * 3} if known else {},
                )
                for r in result.runs
            ]
            return summarize(runs, {})

        pair = [measured(made("kt_pfl", *KT_PFL), 0.9), measured(made("local", *LOCAL), 0.8)]
        comparison = under({"headline": "auc"}, pair)
        assert [each.decision for each in comparison.decisions] == [COLLABORATE if known else OPEN] * 3
        first = comparison.decisions[0]
        assert first.together == pytest.approx(0.901)
        if known:
            assert isinstance(first.difference, SampledDifference)
            assert first.difference.error == pytest.approx(3 * 0.0005)  # (10 - 1) · 0.0005², and seeds have equal gains
            assert first.difference.freedom == pytest.approx(9)


class TestUncertainty:
    def test_it_has_a_part_of_the_seeds_and_a_part_of_the_samples(self) -> None:
        values = [0.1, 0.2, 0.3]
        found, usual = on_samples(values, 0.12, 100), difference(values)
        assert found is not None
        assert usual is not None
        assert found.error**2 == pytest.approx(0.01 / 3 + 0.0012)
        assert found.freedom == pytest.approx(found.error**4 / ((0.01 / 3) ** 2 / 2 + 0.0012**2 / 100))
        none = on_samples(values, 0.0, 100)
        assert none is not None
        assert (none.ends, none.p) == (pytest.approx(usual.ends), pytest.approx(usual.p))
        assert on_samples(values[:2], 0.12, 100) == difference(values[:2])

    def test_the_jackknife_has_the_variance_of_a_mean(self) -> None:
        values = [1.0, 4.0, 2.0, 7.0]
        without = [(sum(values) - value) / 3 for value in values]
        assert jackknife_variance([*without, math.nan]) == pytest.approx(variance(values) / 4)
        assert math.isnan(jackknife_variance([math.nan, 1.0]))

    def test_models_that_are_right_independently_have_the_largest_variance(self) -> None:
        """With equal answers on all but one sample of 100, the variance is 0.03; independent answers have 0.32."""
        assert answers_variance([1] + [0] * 99) == pytest.approx((2 + 1) / 102 - (1 / 102) ** 2)
        assert most_variance(0.8, 0.8, 100) == pytest.approx(2 * (82 / 104) * (22 / 104))


def test_a_run_is_read_back_with_its_answers() -> None:
    run = made("kt_pfl", *KT_PFL).runs[0]
    assert FinishedRun.from_dict(run.to_dict()) == run
    assert not math.isnan(run.samples["test"][0])
