"""Each client keeps the better of the method's model and its own by its validation samples, by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
from finished_runs import make_run, under

from ktpfl_pipeline.analysis.choice import picks
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, summarize
from ktpfl_pipeline.core.settings import Choice
from ktpfl_pipeline.core.validation import parse, spelt_out

RULE = {"by": "validation", "margin": 0.0, "minimum": 5}
SAMPLES = [10, 10, 10, 4, 0]
"""The third client's validation accuracies are equal, the fourth client has too few samples, and the fifth has none."""
OURS, OWN = (0.8, 0.5, 0.9, 0.9, math.nan), (0.6, 0.7, 0.9, 0.5, math.nan)
TEST_OURS, TEST_OWN = (0.7, 0.5, 0.9, 0.8, 0.6), (0.6, 0.6, 0.7, 0.6, 0.7)


def made(
    method: str, test: tuple[float, ...], validation: tuple[float, ...], seed: int = 0, rounds: int = 1, **changes: Any
) -> FinishedRun:
    run = make_run(method, seed, [test] * rounds)
    history = [replace(r, accuracy={**r.accuracy, "validation": list(validation)}) for r in run.history]
    return replace(run, history=history, **{"samples": {"validation": SAMPLES}, **changes})


def compared(*results: MethodResult, **rule: Any) -> Comparison:
    return under({"evaluation": {"choice": {**RULE, **rule}}}, results)


def both(**changes: Any) -> list[MethodResult]:
    runs = [("kt_pfl", TEST_OURS, OURS), ("local", TEST_OWN, OWN)]
    return [summarize([made(*run, seed=seed, **changes) for seed in range(3)], {}) for run in runs]


class TestRule:
    @pytest.mark.parametrize(
        ("theirs", "own", "samples", "margin", "keeps"),
        [
            (0.8, 0.7, 10, 0.0, True),
            (0.7, 0.7, 10, 0.0, False),  # a tie
            (0.1 + 0.2, 0.3, 10, 0.0, False),  # a tie but for rounding
            (0.8, 0.7, 10, 0.1, False),
            (0.8, 0.65, 10, 0.1, True),
            (0.8, 0.7, 5, 0.0, True),
            (1.0, 0.0, 4, 0.0, False),
            (math.nan, 0.0, 10, 0.0, False),
        ],
    )
    def test_a_client_keeps_the_methods_model_if_it_is_better(
        self, theirs: float, own: float, samples: int, margin: float, keeps: bool
    ) -> None:
        assert Choice(margin=margin).keeps(theirs, own, samples) is keeps

    def test_one_word_is_the_rule(self) -> None:
        assert parse(Choice, spelt_out("choice", "none"), "choice") == Choice("none")


class TestChosen:
    def test_the_accuracy_is_that_of_the_models_kept(self) -> None:
        comparison = compared(*both())
        found = {each.method: each.final["chosen"].per_client for each in comparison}
        assert found["kt_pfl"] == pytest.approx([0.7, 0.6, 0.7, 0.6, 0.7])
        assert found["local"] == pytest.approx(TEST_OWN)
        gain = comparison.gains("chosen")["kt_pfl"]
        assert gain is not None
        assert (gain.mean, gain.seeds) == (pytest.approx(0.1 / 5), 3)

    def test_who_keeps_and_who_loses(self) -> None:
        """Two clients lose 10 points with KT-pFL, the second and the last, and none after the choice."""
        comparison = compared(*both())
        kt_pfl = comparison.main
        assert comparison.worse_off(kt_pfl, by=0.01) == pytest.approx([0.4] * 3)
        assert comparison.worse_off(kt_pfl, by=0.11) == [0.0] * 3
        assert comparison.worse_off(kt_pfl, "chosen", 0.01) == [0.0] * 3
        found = comparison.choices(kt_pfl)
        assert found is not None
        assert (found.keeping, found.judged, found.right, found.better) == ([1.0] * 3, 9, 6, 6)

    def test_every_evaluation_of_the_final_value_has_its_own_choice(self) -> None:
        """The first client keeps KT-pFL's model in two of three rounds: (0.7 + 0.7 + 0.6) / 3."""
        ours = made("kt_pfl", TEST_OURS, OURS, rounds=3)
        last = ours.history[-1]
        worse = replace(last, accuracy={**last.accuracy, "validation": [0.5, *OURS[1:]]})
        ours = replace(ours, history=[*ours.history[:-1], worse])
        comparison = compared(summarize([ours], {}), summarize([made("local", TEST_OWN, OWN, rounds=3)], {}))
        assert comparison.main.final["chosen"].per_client[0] == pytest.approx(2.0 / 3)
        found = comparison.choices(comparison.main)
        assert found is not None
        assert found.keeping == pytest.approx([2 / 3])

    def test_malicious_clients_do_not_count(self) -> None:
        comparison = compared(*both(adversaries=[0]))
        found = comparison.choices(comparison.main)
        assert found is not None
        assert found.keeping == [0.0] * 3
        gain = comparison.gains("chosen")["kt_pfl"]
        assert gain is not None
        assert gain.mean == 0.0

    def test_values_that_do_not_count_are_not_chosen(self) -> None:
        """The first client's value is stale with local-only, so it counts with neither method."""
        kt_pfl, local = both()
        stale = [replace(r, history=[replace(each, stale=[0]) for each in r.history]) for r in local.runs]
        comparison = compared(kt_pfl, summarize(stale, {}))
        assert math.isnan(comparison.main.final["chosen"].per_client[0])
        gain = comparison.gains("chosen")["kt_pfl"]
        assert gain is not None
        assert gain.mean == 0.0

    def test_a_client_that_was_absent_in_a_round_has_no_choice_there(self) -> None:
        """Both clients keep KT-pFL's model whenever they are measured; each is absent in one of three rounds."""
        ours, own = (
            made(*run, rounds=3, samples={"validation": [10, 10]})
            for run in (("kt_pfl", (0.7, 0.7), (0.9, 0.9)), ("local", (0.6, 0.6), (0.5, 0.5)))
        )
        history = [replace(r, absent=who) for r, who in zip(ours.history, ([0], [], [1]), strict=True)]
        comparison = compared(summarize([replace(ours, history=history)], {}), summarize([own], {}))
        found = comparison.choices(comparison.main)
        assert found is not None
        assert (found.keeping, found.judged, found.right) == ([2.0], 4, 4)

    @pytest.mark.parametrize("without", ["rule", "validation", "local", "counts"])
    def test_without_what_it_needs_there_is_no_choice(self, without: str) -> None:
        kt_pfl, local = both(**({"samples": {}} if without == "counts" else {}))
        if without == "validation":
            kt_pfl, local = (
                summarize([replace(r, samples={"validation": [0] * 5}) for r in each.runs], {})
                for each in (kt_pfl, local)
            )
        given = [kt_pfl] if without == "local" else [kt_pfl, local]
        comparison = compared(*given, by="none") if without == "rule" else compared(*given)
        assert "chosen" not in comparison.main.final
        assert comparison.choices(comparison.main) is None
        assert comparison.gains("chosen").get("kt_pfl") is None

    def test_with_early_stopping_the_best_rounds_are_compared(self) -> None:
        """Local-only is best in its first round, KT-pFL in its second."""
        ours = made("kt_pfl", TEST_OURS[:2], (0.8, 0.5), rounds=2, samples={"validation": [10, 10]}, patience=1)
        own = made("local", TEST_OWN[:2], (0.6, 0.7), rounds=2, samples={"validation": [10, 10]}, patience=1)
        first, second = ours.history
        ours = replace(ours, history=[replace(first, accuracy={**first.accuracy, "validation": [0.0, 0.0]}), second])
        found = picks(ours, own, Choice())
        assert list(found) == [2]
        assert [pick.keeps for pick in found[2]] == [True, False]

    def test_with_early_stopping_seeds_may_have_no_best_round_in_common(self) -> None:
        """Both clients keep KT-pFL's model in the best round, the first with one seed and the second with the other."""
        results = []
        for method, accuracy, more in (("kt_pfl", 0.7, 0.1), ("local", 0.6, 0.0)):
            runs = []
            for seed, by_round in enumerate(((0.8, 0.5), (0.5, 0.8))):
                run = made(method, (accuracy,) * 2, (), seed, 2, samples={"validation": [10, 10]}, patience=1)
                history = [
                    replace(r, accuracy={**r.accuracy, "validation": [value + more] * 2})
                    for r, value in zip(run.history, by_round, strict=True)
                ]
                runs.append(replace(run, history=history))
            results.append(summarize(runs, {}))
        found = compared(*results).main.final["chosen"]
        assert (found.mean, found.best) == (pytest.approx(0.7), pytest.approx(0.7))
