"""Which values are compared: of clients that were measured in the same round with every method."""

import math
from dataclasses import replace
from typing import Any

import pytest
from finished_runs import make_run, under

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.fresh import fresh
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, summarize
from ktpfl_pipeline.reports import comparison as report

AFTER = "after_transfer"


def made(method: str, *rounds: tuple[float, ...], seed: int = 0, **at: dict[int, Any]) -> FinishedRun:
    """Return a run with each client's accuracy by round. `at` are fields of records, each by its round."""
    run = make_run(method, seed, rounds)
    changes = [{name: by_round[r.round] for name, by_round in at.items() if r.round in by_round} for r in run.history]
    return replace(run, history=[replace(r, **c) for r, c in zip(run.history, changes, strict=True)])


def result(*runs: FinishedRun) -> MethodResult:
    return summarize(runs, {})


LATE = {t: [2] for t in (3, 4, 5, 6)}
"""The third client does not answer from round 3 on."""


@pytest.fixture
def example() -> list[MethodResult]:
    """Three clients: −1.6 and 0.0 points; the third has 52.9 %, and with local-only its 28.6 % of round 2 forever."""
    kt_pfl = made("kt_pfl", *[(0.484, 0.5, 0.529)] * 6)
    local = made("local", *[(0.5, 0.5, 0.286)] * 6, stale=LATE)
    return [result(replace(run, names=["north", "south", "west"])) for run in (kt_pfl, local)]


class TestStale:
    def test_a_value_that_was_carried_on_decides_nothing(self, example: list[MethodResult]) -> None:
        """The means over all clients differ by 7.57 points, those over the two others by −0.8."""
        kt_pfl, local = example
        assert kt_pfl.final[AFTER].mean - local.final[AFTER].mean == pytest.approx((-0.016 + 0 + 0.243) / 3)
        compared = Comparison(example)
        gain = compared.gains()["kt_pfl"]
        assert gain is not None
        assert gain.mean == pytest.approx(-0.008)
        assert [each.final[AFTER].mean for each in compared] == pytest.approx([0.492, 0.5])
        assert compared.best.method == "local"
        assert compared.worse_off(compared.main) == [0.5]

    def test_it_is_named_before_the_first_sentence(
        self, example: list[MethodResult], blank_figures: None, paper_settings: dict[str, object]
    ) -> None:
        made = report.build("x", under(paper_settings, example))
        said = "west: not evaluated with Local-only in rounds 3 to 6"
        for text in (made.markdown, " ".join(made.console.split()), " ".join(made.html.split())):
            assert -1 < text.index(said) < text.index("KT-pFL is 0.8 percentage points below local")
        rows = made.data["clients.csv"].splitlines()
        assert sum(row.count("not evaluated with Local-only") for row in rows) == 2  # of both methods
        assert [row.split(",")[-2:] for row in rows if "west" in row] == [["", ""]] * 2, "it has no accuracy"

    def test_a_client_that_missed_few_rounds_counts_without_these(self) -> None:
        """The second client has no value in round 5 of local-only: of both methods rounds 1 to 4 count for it."""
        rounds = [(0.5, 0.1 * t) for t in range(1, 6)]
        kt_pfl = result(made("kt_pfl", *rounds))
        local = result(made("local", *rounds, stale={5: [1]}))
        compared = Comparison([kt_pfl, local])
        assert [each.final[AFTER].per_client for each in compared] == [pytest.approx([0.5, 0.25])] * 2
        (left,) = compared.fresh.left_out
        assert (left.client, left.whole, left.text) == (1, False, "not evaluated with Local-only in round 5")

    def test_a_client_without_any_value_is_left_out(self) -> None:
        none = made("local", (0.5, math.nan), (0.6, math.nan), stale={1: [1], 2: [1]})
        compared = Comparison([result(made("kt_pfl", (0.4, 0.9), (0.5, 0.9))), result(none)])
        gain = compared.gains()["kt_pfl"]
        assert gain is not None
        assert gain.mean == pytest.approx(-0.1)

    def test_methods_without_a_common_client_are_not_compared(self, blank_figures: None) -> None:
        kt_pfl, local = made("kt_pfl", (0.5, 0.9), stale={1: [0]}), made("local", (0.5, 0.1), stale={1: [1]})
        compared = Comparison([result(kt_pfl), result(local)])
        assert compared.gains() == {"kt_pfl": None}
        assert "have no client in common" in report.summary(compared)
        assert "Without any other client" in report.build("x", compared).warnings["Left out"]


class TestSimulated:
    def both(self, **at: dict[int, Any]) -> Comparison:
        """Five rounds, three clients: FedMD with these events, and local-only 10 points below it."""
        rounds = [(0.5, 0.6, 0.7)] * 5
        lower = [tuple(value - 0.1 for value in values) for values in rounds]
        return Comparison([result(made("fedmd", *rounds, **at)), result(made("local", *lower))])

    @pytest.mark.parametrize(("event", "reason"), [("diverged", "diverged"), ("absent", "absent")])
    def test_a_model_of_an_earlier_round_is_not_compared(self, event: str, reason: str) -> None:
        compared = self.both(**{event: {t: [2] for t in (3, 4, 5)}})
        assert compared.results[0].final[AFTER].mean == pytest.approx(0.55)
        (left,) = compared.fresh.left_out
        assert (left.whole, left.text) == (True, f"{reason} with FedMD in rounds 3 to 5")
        assert not self.both(**{event: {4: [2]}}).fresh.left_out[0].whole

    def test_a_client_in_no_cohort_is_left_out_with_every_method(self) -> None:
        some = {"cohort": {t: [0, 1] for t in range(1, 6)}}
        runs = [made(name, *[(0.5, 0.6, 0.1)] * 5, **some) for name in ("fedmd", "local")]
        found = fresh([result(run) for run in runs])
        assert [each.final[AFTER].mean for each in found.results] == pytest.approx([0.55, 0.55])
        assert [(left.client, left.text) for left in found.left_out] == [(2, "in no cohort")]

    def test_rounds_in_which_a_client_was_absent_with_every_method_need_no_name(self) -> None:
        rounds = [(0.5, 0.1 * t) for t in range(1, 6)]
        runs = [made(name, *rounds, absent={t: [1] for t in (2, 3, 4, 5)}) for name in ("fedmd", "local")]
        found = fresh([result(run) for run in runs])
        assert [each.final[AFTER].per_client for each in found.results] == [pytest.approx([0.5, 0.1])] * 2
        assert found.left_out == []

    def test_no_earlier_round_replaces_one_without_any_value(self) -> None:
        """In the last of seven rounds no client has a value with FedMD; in the second the third client was absent."""
        rounds = [(0.5, 0.6, 0.7)] * 7
        fedmd = made("fedmd", rounds[0], (0.5, 0.6, 0.1), *rounds[2:], absent={2: [2], 7: [0, 1, 2]})
        compared = Comparison([result(fedmd), result(made("local", *rounds))])
        assert [each.final[AFTER].per_client for each in compared] == [pytest.approx(rounds[0])] * 2
        assert compared.main.curve[AFTER].rounds == [1, 2, 3, 4, 5, 6]

    def test_a_point_that_only_a_client_without_a_value_has_is_left_out(self) -> None:
        """The third client alone has validation samples, and it was absent with FedMD."""
        runs = [made(name, *[(0.5, 0.6, 0.7)] * 5) for name in ("fedmd", "local")]
        accuracy = {AFTER: [0.5, 0.6, 0.7], "validation": [math.nan, math.nan, 0.9]}
        fedmd, local = (replace(run, history=[replace(r, accuracy=accuracy) for r in run.history]) for run in runs)
        absent = replace(fedmd, history=[replace(r, absent=[2]) for r in fedmd.history])
        assert "validation" in Comparison([result(fedmd), result(local)]).main.final
        compared = Comparison([result(absent), result(local)])
        assert [*compared.main.final] == [AFTER]
        assert compared.main.final[AFTER].mean == pytest.approx(0.55)

    def test_late_stragglers_count(self) -> None:
        assert self.both(late={5: [2]}, cohort={5: [0, 1]}).fresh.left_out == []

    def test_with_early_stopping_the_best_rounds_are_compared(self) -> None:
        """FedMD's best round is the second, in which the third client had diverged; local-only's is the first."""
        runs = []
        for name, best in (("fedmd", 2), ("local", 1)):
            run = made(name, *[(0.5, 0.6, 0.7)] * 3, **({"diverged": {2: [2]}} if name == "fedmd" else {}))
            history = [
                replace(r, accuracy={**r.accuracy, "validation": [0.9 if r.round == best else 0.5] * 3})
                for r in run.history
            ]
            runs.append(replace(run, history=history, patience=2))
        found = fresh([result(run) for run in runs])
        assert [each.final[AFTER].mean for each in found.results] == pytest.approx([0.55, 0.55])
        assert found.left_out[0].text == "diverged with FedMD in round 2"

    def test_nothing_is_changed_where_all_values_count(self, study: list[MethodResult]) -> None:
        found = fresh(study)
        assert all(one is other for one, other in zip(found.results, study, strict=True))
        assert not found.left_out
