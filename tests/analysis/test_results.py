import json
import subprocess
import sys
from dataclasses import replace

import pytest
from cases import case

from ktpfl_pipeline.analysis.comparison import Comparison, paired_difference
from ktpfl_pipeline.analysis.results import Curve, FinishedRun, MethodResult, summarize
from ktpfl_pipeline.analysis.statistics import Difference
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER

SEVEN = [(t / 10, t / 10 + 0.1) for t in range(1, 8)]  # the last five: 0.5 and 0.6


def lower(rounds, by=0.1):
    return [tuple(value - by for value in values) for values in rounds]


class TestSummary:
    def test_final_is_the_mean_of_the_last_five_evaluations(self, run):
        assert run(after_transfer=SEVEN).final("after_transfer") == pytest.approx([0.5, 0.6])

    def test_with_early_stopping_it_is_that_of_the_best_validated_round(self, run):
        """Validation accuracies 0.5, 0.7 and 0.6: the second of three rounds counts, of two seeds of unequal length."""
        runs = []
        for seed, validated in enumerate(([0.5, 0.7, 0.6], [0.5, 0.4])):
            made = run(seed=seed, after_transfer=SEVEN[: len(validated)])
            history = [
                replace(record, accuracy={**record.accuracy, "validation": [value] * 2})
                for record, value in zip(made.history, validated, strict=True)
            ]
            runs.append(replace(made, history=history, patience=1))
        result = summarize(runs, {})
        assert result.final["after_transfer"].per_seed == pytest.approx([0.25, 0.15])  # rounds 2 and 1
        assert result.rounds == 3
        with pytest.raises(ValueError, match="must agree"):
            summarize([replace(each, patience=None) for each in runs], {})

    def test_rounds_without_evaluation_are_left_out(self, run):
        sparse = [None, (0.2, 0.4), None, (0.4, 0.8), None]
        finished = run(after_transfer=sparse)
        assert finished.final("after_transfer") == pytest.approx([0.3, 0.6])
        assert summarize([finished], {}).curve["after_transfer"] == Curve([2, 4], [pytest.approx([0.3, 0.6])])

    def test_over_two_seeds(self, run):
        final = summarize([run(seed=4, after_transfer=lower(SEVEN)), run(seed=1, after_transfer=SEVEN)], {}).final[
            "after_transfer"
        ]
        assert final.per_seed == pytest.approx([0.55, 0.45])  # seeds 1, 4
        assert final.mean == pytest.approx(0.5)
        assert final.seed_std == pytest.approx(0.1 / 2**0.5)
        assert final.per_client == pytest.approx([0.45, 0.55])
        assert final.client_std == pytest.approx(0.05)
        assert final.worst_decile == pytest.approx(0.45)
        assert final.worst_decile_spread == pytest.approx(0.1 / 2**0.5)
        assert final.best == pytest.approx(0.7)  # round 7: 0.75 and 0.65

    def test_spread_over_clients_is_taken_in_each_seed(self, run):
        """The clients change places: their means over seeds are equal, and yet no seed is even."""
        final = summarize(
            [run(seed=0, after_transfer=[(0.4, 0.8)]), run(seed=1, after_transfer=[(0.7, 0.5)])], {}
        ).final["after_transfer"]
        assert final.client_std == pytest.approx(0.15)  # 0.2 and 0.1
        assert final.client_std_spread == pytest.approx(0.1 / 2**0.5)
        assert final.worst_decile == pytest.approx(0.45)  # 0.4 and 0.5
        assert final.worst_decile_spread == pytest.approx(0.1 / 2**0.5)

    def test_points_are_kept_apart(self, run):
        result = summarize([run(after_transfer=[(0.5, 0.7)], after_local=[(0.8, 1.0)])], {})
        assert list(result.final) == ["after_transfer", "after_local"]
        assert result.final["after_transfer"].mean == pytest.approx(0.6)
        assert result.final["after_local"].mean == pytest.approx(0.9)

    def test_one_seed_has_no_spread_over_seeds(self, run):
        assert summarize([run()], {}).final["after_transfer"].seed_std is None

    def test_one_client_has_no_spread_over_clients(self, run):
        final = summarize([run(after_transfer=[(0.4,)])], {}).final["after_transfer"]
        assert (final.mean, final.client_std, final.worst_decile) == (0.4, 0.0, 0.4)
        assert (final.client_std_spread, final.worst_decile_spread) == (None, None)

    def test_worst_decile(self, run):
        for n, worst in ((9, 0.0), (20, 0.005), (29, 0.005), (30, 0.01)):
            with case(n):
                clients = [i / 100 for i in reversed(range(n))]
                assert summarize([run(after_transfer=[clients])], {}).final[
                    "after_transfer"
                ].worst_decile == pytest.approx(worst)

    def test_totals(self, run):
        runs = [run(seed=0, after_transfer=SEVEN), run(seed=1, after_transfer=SEVEN, knowledge=3_000_000)]
        result = summarize(runs, {"rho": 0.5})
        assert result.traffic["knowledge_up"] == 2 * 7 * 2e6  # clients, rounds, mean over seeds
        assert sum(result.traffic.values()) == result.traffic["knowledge_up"]
        assert result.seconds == {"train": 14.0, "distill": 7.0, "round": 24.5}
        assert (result.rounds, result.seconds["round"], result.clients, result.seeds) == (7, 24.5, 2, [0, 1])
        assert (result.title, result.hyperparameters) == ("KT-pFL", {"rho": 0.5})

    def test_turns_are_cohort_members_over_all_rounds_and_at_least_1(self, run):
        runs = [run(seed=0, after_transfer=SEVEN), run(seed=1, after_transfer=SEVEN)]
        assert summarize(runs, {}).turns == 2 * 7
        no_client = replace(runs[0], history=[replace(record, cohort=[]) for record in runs[0].history])
        assert summarize([no_client], {}).turns == 1

    def test_an_unregistered_method_keeps_its_name(self, run):
        assert summarize([run("my_method")], {}).title == "my_method"

    def test_what_cannot_be_summarized_is_refused(self, run):
        with pytest.raises(ValueError, match="none"):
            summarize([], {})
        with pytest.raises(ValueError, match="fedmd"):
            summarize([run("kt_pfl"), run("fedmd", seed=1)], {})
        with pytest.raises(ValueError, match=r"\[3, 3\]"):
            summarize([run(seed=3), run(seed=3)], {})
        unevaluated = FinishedRun.from_dict({**run().to_dict(), "history": [{"round": 1, "cohort": [0]}]})
        with pytest.raises(ValueError, match="never evaluated"):
            summarize([unevaluated], {})


class TestPlainValues:
    def test_a_run_survives_json(self, run):
        finished = run(after_transfer=[None, (0.5, 0.7)], coefficients=[[0.75, 0.25], [0.5, 0.5]], run_id="abc")
        assert FinishedRun.from_dict(json.loads(json.dumps(finished.to_dict()))) == finished

    def test_a_result_survives_json(self, study, whole):
        for result in [*study, whole]:
            assert MethodResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result

    def test_a_result_of_before_the_spreads_can_be_read(self, study):
        content = json.loads(json.dumps(study[0].to_dict()))
        for final in content["final"].values():
            del final["client_std_spread"], final["worst_decile_spread"]
        assert MethodResult.from_dict(content).final["after_transfer"].mean == study[0].final["after_transfer"].mean

    def test_reading_results_needs_no_torch(self):
        check = "import sys, ktpfl_pipeline.analysis.results; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


class TestComparison:
    def test_difference_is_paired_by_seed(self, result):
        found = paired_difference(result("kt_pfl", 0.9, 0.8), result("local", 0.85, 0.79))
        assert found.mean == pytest.approx(0.03)  # 0.05 and 0.01
        assert found.std == pytest.approx(0.04 / 2**0.5)
        assert found.seeds == 2

    def test_only_common_seeds_count(self, result, run):
        a, b = result("kt_pfl", 0.9, 0.8), summarize([run("local", 1, [(0.7, 0.8)])], {})
        assert paired_difference(a, b) == Difference(pytest.approx(0.05), None, None, None, 1)
        assert paired_difference(a, summarize([run("local", 9)], {})) is None

    def test_at_another_point(self, study):
        found = paired_difference(study[0], study[2], "after_local")
        assert (found.mean, found.std) == (pytest.approx(0.03), pytest.approx(0))
        assert paired_difference(study[0], study[2], "validation") is None

    def test_subject(self, study, result):
        kt_pfl, fedmd, local = study
        assert Comparison([local, fedmd, kt_pfl]).main is kt_pfl
        assert Comparison([local, fedmd]).main is fedmd
        assert Comparison([local]).main is local
        assert Comparison(study).local is local
        assert Comparison(study[:2]).local is None

    def test_what_is_no_result_is_refused(self, study):
        stored = json.loads(json.dumps(study[0].to_dict()))
        names = ("runs", "curve", "final", "method")
        without = [{name: part for name, part in stored.items() if name != left_out} for left_out in names]
        values = (None, 5, "text", [5], {"after_local": 5})
        replaced = [{**stored, name: value} for name in ("runs", "curve", "final") for value in values]
        for content in ({}, [], *values, *without, *replaced, {**stored, "settings": 5}, {**stored, "method": 5}):
            with case(content), pytest.raises(ValueError, match=":"):
                MethodResult.from_dict(content)


class TestAdversaries:
    def test_no_mean_counts_them(self, run):
        """Three clients, the second lies: its accuracy is kept and stands in no mean, deviation or curve."""
        liar = replace(run("kt_pfl", 0, [(0.5, 0.1, 0.7)] * 2), adversaries=[1], trust=0.8)
        result = summarize([liar], {})
        final = result.final[AFTER_TRANSFER]
        assert final.mean == final.per_seed[0] == pytest.approx(0.6)
        assert final.per_client == pytest.approx([0.5, 0.1, 0.7])
        assert (final.worst_decile, final.client_std, final.best) == pytest.approx((0.5, 0.1, 0.6))
        assert result.curve[AFTER_TRANSFER].by_seed == [pytest.approx([0.6, 0.6])]
        assert FinishedRun.from_dict(liar.to_dict()) == liar


class TestWhoTookPart:
    """Twenty clients, of whom a round has as many more as are said; each round's accuracy is its number in percent."""

    def made(self, run, *cohorts: int):
        rounds = [[t / 100] * 20 for t in range(1, len(cohorts) + 1)]
        finished = run(after_transfer=rounds)
        return replace(
            finished,
            history=[replace(r, cohort=list(range(n))) for r, n in zip(finished.history, cohorts, strict=True)],
        )

    def test_evaluations_count_from_the_round_in_which_95_percent_have_taken_part(self, run):
        finished = self.made(run, 5, 18, 19, 5, 5, 5)
        assert [record.round for record in finished.counted] == [3, 4, 5, 6]
        assert finished.final(AFTER_TRANSFER) == pytest.approx([0.045] * 20)
        assert (finished.sampled_share, finished.sampled) == (0.95, list(range(19)))

    def test_a_client_that_diverged_and_sat_out_counts(self, run):
        """So the final values of all methods are of the same rounds."""
        finished = self.made(run, 5, 20, 5, 5)
        first, second, *rest = finished.history
        out = replace(second, cohort=list(range(18)), diverged=[18, 19])
        one_out = replace(finished, history=[first, out, *rest])
        assert [r.round for r in one_out.counted] == [r.round for r in finished.counted] == [2, 3, 4]
        assert one_out.sampled_share == 0.9

    def test_the_last_five_of_these(self, run):
        assert [record.round for record in self.made(run, *[20] * 7).counted] == [3, 4, 5, 6, 7]

    def test_a_closing_round_counts_alone(self, run):
        assert self.made(run, 5, 5, 5, 20).final(AFTER_TRANSFER) == pytest.approx([0.04] * 20)

    def test_where_so_many_never_do_the_last_five_count(self, run):
        finished = self.made(run, *[18] * 6)
        assert [record.round for record in finished.counted] == [2, 3, 4, 5, 6]
        assert finished.sampled_share == 0.9

    def test_cohorts_name_clients_by_their_ids(self, run):
        finished = replace(self.made(run, 5), ids=[n + 2 for n in range(20)])
        assert finished.sampled == [0, 1, 2]

    def test_points_after_adaptation_come_last_in_the_order_of_their_epochs(self, run):
        """They are in the last evaluations alone, and have a final value and a curve of these."""
        finished = self.made(run, *[20] * 7)
        late = [
            replace(r, accuracy={"adapted_10": [0.9] * 20, "adapted_2": [r.round / 10] * 20, **r.accuracy})
            for r in finished.history[-5:]
        ]
        result = summarize([replace(finished, history=[*finished.history[:2], *late])], {})
        assert list(result.final) == [AFTER_TRANSFER, "after_local", "adapted_2", "adapted_10"]
        assert result.final["adapted_2"].mean == pytest.approx(0.5)
        assert result.curve["adapted_2"].rounds == [3, 4, 5, 6, 7]
        assert result.curve[AFTER_TRANSFER].rounds == [1, 2, 3, 4, 5, 6, 7]
        assert result.client_curves("adapted_10")[0] == [3, 4, 5, 6, 7]
