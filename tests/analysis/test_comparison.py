"""Who loses by taking part, who was never there, and when local-only's accuracy was reached, by hand."""

from dataclasses import replace

import pytest

from ktpfl_pipeline.analysis import clients
from ktpfl_pipeline.analysis.clients import Reached
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import summarize


@pytest.fixture
def rounds(run):
    """Make a method's result of three clients, one run a seed, from each client's accuracy by round."""

    def make(method, *by_seed, **changes):
        runs = [run(method, seed, after_transfer=accuracy) for seed, accuracy in enumerate(by_seed)]
        return summarize([replace(each, **changes) for each in runs], {})

    return make


def told(run, **entries):
    """Return the run with these entries in the record of every round."""
    return replace(run, history=[replace(record, **entries) for record in run.history])


class TestTogether:
    def test_each_minus_the_reference_and_the_subject_minus_each(self, study):
        _, fedmd, local = study
        assert {name: each.mean for name, each in Comparison(study).gains().items()} == pytest.approx(
            {"kt_pfl": 0.02, "fedmd": -0.08}
        )
        assert Comparison(study).leads()["fedmd"].mean == pytest.approx(0.1)
        assert Comparison(study).baselines == [fedmd]
        assert Comparison([local]).baselines == []

    def test_what_a_report_states_stands_once(self, study):
        """To local-only with the others that stand beside it, not among the rivals as well."""
        pairs = [(one.method, other.method) for one, other, _ in Comparison(study).stated("after_transfer")]
        assert pairs == [("kt_pfl", "fedmd"), ("kt_pfl", "local"), ("fedmd", "local")]
        assert {found.family for *_, found in Comparison(study).stated("after_transfer")} == {1, 2}

    def test_the_best_is_clear_if_it_is_above_all_others_together(self, result):
        """By itself the lead over the runner-up is 3 points ± 4.303 · 1 / √3; one of three needs ± 7.649 · 1 / √3."""
        best, second = result("kt_pfl", 0.90, 0.92, 0.94), result("fedmd", 0.88, 0.89, 0.90)
        others = [result(name, 0.85, 0.93, 0.80) for name in ("ds_fl", "local")]
        assert Comparison([second, best]).clear_best() is best
        assert Comparison([second, best, *others]).clear_best() is None
        assert Comparison([best]).clear_best() is None


class TestByArchitecture:
    """Three clients: LeNet, MLP, LeNet."""

    @pytest.fixture
    def both(self, rounds):
        local = rounds("local", [(0.5, 0.6, 0.7)], [(0.6, 0.6, 0.6)], [(0.4, 0.6, 0.8)])
        fedmd = rounds("fedmd", [(0.7, 0.5, 0.8)], [(0.7, 0.5, 0.8)], [(0.5, 0.4, 0.9)])
        return [fedmd, local]

    def test_the_clients_of_an_architecture_are_paired_by_seed(self, both):
        """LeNet: 15, 15 and 10 points; MLP: -10, -10 and -20."""
        found = Comparison(both).gains_by_architecture
        assert list(found) == Comparison(both).architectures == ["lenet", "mlp"]
        assert found["lenet"]["fedmd"].mean == pytest.approx(0.4 / 3)
        assert found["mlp"]["fedmd"].mean == pytest.approx(-0.4 / 3)
        assert found["mlp"]["fedmd"].low == pytest.approx(-0.4 / 3 - 4.302653 * 0.0577350 / 3**0.5, abs=1e-6)
        assert found["lenet"].keys() == {"fedmd"}

    def test_adversaries_are_not_counted(self, both):
        """Without the first client the LeNets are the last one's: 10, 20 and 10 points."""
        some = [summarize([replace(run, adversaries=[0]) for run in result.runs], {}) for result in both]
        assert Comparison(some).gains_by_architecture["lenet"]["fedmd"].mean == pytest.approx(0.4 / 3)

    def test_a_seed_without_the_architecture_does_not_count(self, both):
        fedmd, local = both
        runs = [local.runs[0], *(replace(run, architectures=["lenet"] * 3) for run in local.runs[1:])]
        found = Comparison([summarize(runs, {}), fedmd]).gains_by_architecture
        assert found["mlp"]["fedmd"].seeds == 1

    def test_there_is_nothing_without_local_only(self, both):
        assert Comparison(both[:1]).gains_by_architecture == {}


class TestClients:
    def test_harmed_is_any_loss_with_the_same_seed(self, rounds):
        local = rounds("local", [(0.5, 0.6, 0.7)], [(0.7, 0.6, 0.5)])
        fedmd = rounds("fedmd", [(0.5, 0.5, 0.8)], [(0.6, 0.5, 0.5)])
        assert Comparison([fedmd, local]).worse_off(fedmd) == pytest.approx([1 / 3, 2 / 3])
        assert Comparison([fedmd, local]).worse_off(local) == [0, 0]

    def test_a_mean_that_is_lower_by_rounding_only_is_no_loss(self, rounds):
        """The mean of 0.1 and 0.2 is above 0.15 in float64, which the mean of 0.3 and 0 is."""
        local, fedmd = rounds("local", [(0.1, 0.5), (0.2, 0.5)]), rounds("fedmd", [(0.3, 0.5), (0.0, 0.5)])
        assert Comparison([fedmd, local]).worse_off(fedmd) == [0]

    def test_adversaries_are_not_counted(self, rounds):
        local = rounds("local", [(0.5, 0.6, 0.7)], adversaries=[0])
        fedmd = rounds("fedmd", [(0.4, 0.5, 0.8)], adversaries=[0])
        assert Comparison([fedmd, local]).worse_off(fedmd) == [0.5]
        assert clients.of_clients(fedmd, True) == pytest.approx([0.65])

    def test_sampled_and_never(self, run):
        runs = [told(run("fedavg", seed, [(0.2, 0.6, 0.7)] * 2), cohort=[1, 2][: 2 - seed]) for seed in (0, 1)]
        result = summarize(runs, {})
        assert clients.of_clients(result, True) == pytest.approx([0.65, 0.6])
        assert clients.of_clients(result, False) == pytest.approx([0.2, 0.45])
        assert clients.of_clients(summarize([run()], {}), False) == []


class TestToLocalOnly:
    def test_the_first_evaluated_round_that_is_as_accurate(self, run):
        """Two clients send 5 bytes each in a round: local-only's 0.6 is reached in the third."""
        finished = run("fedmd", 0, [(0.5, 0.5), None, (0.6, 0.6), (0.4, 0.4)], knowledge=5)
        assert clients.reached(finished, 0.6) == Reached(3, 30)
        assert clients.reached(finished, 0.61) is None

    def test_the_target_is_of_the_same_seed(self, rounds):
        local = rounds("local", [(0.5, 0.5, 0.5)], [(0.9, 0.9, 0.9)])
        fedmd = rounds("fedmd", [(0.6, 0.6, 0.6)], [(0.6, 0.6, 0.6)])
        assert Comparison([fedmd, local]).to_local_only(fedmd) == [Reached(1, 3_000_000), None]

    def test_an_accuracy_that_differs_by_rounding_only_is_reached(self, rounds):
        """Both always have eight ninths, of which the mean over five rounds is another number in float64."""
        local, fedmd = rounds("local", [(8 / 9, 8 / 9)] * 5), rounds("fedmd", [(8 / 9, 8 / 9)] * 5)
        assert Comparison([fedmd, local]).to_local_only(fedmd) == [Reached(1, 2_000_000)]


class TestMeasures:
    def test_the_mean_of_those_of_the_last_evaluations_that_have_it(self, run):
        finished = told(run("fedmd", 0, [(0.5, 0.7)] * 2), measures={"macro_f1": [0.2, 0.4]})
        last = replace(finished.history[-1], measures={"macro_f1": [0.4, 0.6], "global_accuracy": [0.1, 0.3]})
        finished = replace(finished, history=[finished.history[0], last])
        assert finished.measures["macro_f1"] == pytest.approx([0.3, 0.5])
        assert finished.measures["global_accuracy"] == pytest.approx([0.1, 0.3])
        assert "balanced_accuracy" not in finished.measures
        assert clients.means(summarize([finished], {}), "macro_f1") == pytest.approx([0.4])

    def test_work_in_units_of_local_only_is_of_the_same_seed(self, run):
        """Whose cohorts were as large."""
        results = [
            summarize([told(run(m, s, [(0.5, 0.7)]), work={"samples": [n * (s + 1)] * 2}) for s in (0, 1)], {})
            for m, n in (("local", 10), ("pfedme", 50))
        ]
        assert Comparison(results).relative_work(results[1]) == [5, 5]
        assert Comparison([results[1], summarize([run("local", 0)], {})]).relative_work(results[1]) == []

    def test_work_is_summed_over_cohorts_and_rounds(self, run):
        finished = told(run("fedmd", 0, [(0.5, 0.7)] * 3), work={"samples": [10, 20]})
        assert finished.work["samples"] == 90
        assert "flops" not in finished.work
