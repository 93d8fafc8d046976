"""The small tables beside the main one, from records by hand."""

from dataclasses import replace

import pytest
from finished_runs import under
from written import column, keys, notes_of, row

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.reports import comparison, measures, notes
from ktpfl_pipeline.reports.answer import adapted, summary
from ktpfl_pipeline.reports.words import marked


def again(result, **entries):
    """Return the result with these entries in every round's record of every run."""
    runs = [replace(run, history=[replace(record, **entries) for record in run.history]) for run in result.runs]
    return summarize(runs, {})


@pytest.fixture
def adapted_study(study):
    """After four epochs FedMD's clients are 12 points better, local-only's 2; KT-pFL's are as they were."""
    gains = {"kt_pfl": 0.0, "fedmd": 0.12, "local": 0.02}
    results = []
    for result in study:
        runs = []
        for run in result.runs:
            (record,) = run.history
            after = [value + gains[result.method] for value in record.accuracy["after_transfer"]]
            history = [replace(record, accuracy={**record.accuracy, "adapted_4": after, "adapted_10": after})]
            runs.append(replace(run, history=history))
        results.append(summarize(runs, {}))
    return results


class TestAdaptation:
    def test_every_column_is_against_local_only_adapted_alike(self, adapted_study):
        _, table, _ = measures.adaptation(Comparison(adapted_study))
        assert row(table, "KT-pFL") == {
            "after_transfer": "90.0 ± 1.0",
            "after_transfer_minus_local": "**+2.0** [+2.0, +2.0]",
            **{f"adapted_{e}": "90.0 ± 1.0" for e in (4, 10)},
            **{f"adapted_{e}_minus_local": "0.0 [0.0, 0.0]" for e in (4, 10)},
        }
        assert row(table, "FedMD")["adapted_4"] == "92.0 ± 2.0"
        assert keys(table)[-2] == "adapted_10", "as numbers, not as text"

    def test_a_sentence_says_what_changes(self, prose, adapted_study):
        """FedMD: 92 against 90, with differences of 1, 2 and 3 points; first of two, at 97.5 %: 2 ± 6.205 / √3."""
        said = prose(adapted(Comparison(adapted_study)))
        assert said.startswith("After 10 extra epochs of local training for every method, differences to local-only")
        assert "FedMD +2.0 [−1.6, +5.6] (after transfer: −8.0 [−10.5, −5.5])" in said
        first, second = "FedMD has the highest mean, 92.0 ± 2.0 %", "not significantly below it: KT-pFL, Local-only."
        assert said.endswith(f" {first}; {second}")

    def test_nothing_was_adapted(self, study, adapted_study):
        assert adapted(Comparison(study)) == adapted(Comparison(adapted_study[:2])) == ""
        assert measures.adaptation(Comparison(study)) == []

    @pytest.mark.usefixtures("blank_figures")
    def test_in_the_report_and_on_the_terminal(self, adapted_study, paper_settings):
        built = comparison.build("x", under(paper_settings, adapted_study))
        assert "## After adaptation" in built.markdown
        assert "After 10 extra" in built.console
        assert "Adapted_4" not in built.markdown, "the table of runs has the points of a round"


def test_few_clients_that_took_part_are_told_of(prose, study, paper_settings):
    """One of two clients was in a cohort."""
    some = [again(result, cohort=[0]) for result in study]
    told = "only 50 % of the clients were in any round's cohort"
    assert prose(notes.participation(some[0].runs[0]), "run").startswith(f"{told}, so")
    assert notes.participation(study[0].runs[0]) == ""
    left_out = prose(notes_of(under(paper_settings, some))["Left out"], "report")
    assert "count in no number" in left_out and left_out.endswith("1 (seed 0), 1 (seed 1), 1 (seed 2): in no cohort.")
    assert "Left out" not in notes_of(under(paper_settings, study))


class TestByArchitecture:
    def test_cells(self, study):
        table, notes = measures.by_architecture(Comparison(study))
        assert column(table, "method") == ["KT-pFL", "FedMD"], "local-only is what the others are compared with"
        assert row(table, "FedMD") == {
            "minus_local_lenet": "**−8.0** [−10.5, −5.5]",
            "minus_local_mlp": "**−8.0** [−10.5, −5.5]",
            "minus_local": "**−8.0** [−10.5, −5.5]",
        }
        assert "By architecture" in notes.entries

    def test_one_architecture_has_no_table(self, study):
        alike = [summarize([replace(run, architectures=["mlp"] * 2) for run in each.runs], {}) for each in study]
        assert measures.by_architecture(Comparison(alike)) == []
        assert measures.by_architecture(Comparison(study[:2])) == [], "nor has a comparison without local-only"

    @pytest.mark.usefixtures("blank_figures")
    def test_in_every_form_of_the_report(self, study, paper_settings):
        built = comparison.build("x", under(paper_settings, study))
        assert "## By architecture" in built.markdown
        assert "minus local-only by architecture" in built.latex()["tables/architectures.tex"]
        assert "By architecture" in built.files["report.html"]


class TestFairness:
    def test_cells(self, study):
        """Two clients 10 points around the mean. FedMD's are 9, 8 and 7 points below local-only's."""
        table, notes = measures.fairness(Comparison(study))
        assert column(table, "method") == ["KT-pFL", "Local-only", "FedMD"]
        assert row(table, "KT-pFL") == {
            "client_std": "10.0 ± 0.0",
            "worst_decile": "80.0 ± 1.0",
            "worse_off": "0.0 ± 0.0",
        }
        assert column(table, "worse_off") == ["0.0 ± 0.0", "–", "100.0 ± 0.0"]
        assert set(notes.entries) == {"Spread over clients", "Worst decile", "Worse off", "Means"}

    def test_without_local_only_no_client_is_worse_off(self, study):
        table, notes = measures.fairness(Comparison(study[:2]))
        assert "worse_off" not in keys(table)
        assert "Worse off" not in notes.entries

    def test_clients_that_were_never_there_stand_apart(self, study):
        table, notes = measures.fairness(Comparison([again(result, cohort=[0]) for result in study]))
        assert row(table, "FedMD")["sampled"] == "70.0 ± 2.0"
        assert row(table, "FedMD")["never_sampled"] == "90.0 ± 2.0"
        assert {"Sampled", "Never sampled"} < set(notes.entries)


class TestQuality:
    def test_nothing_was_measured(self, study):
        assert measures.quality(Comparison(study)) == []

    def test_columns_and_their_meaning(self, study):
        known = again(study[0], measures={"macro_f1": [0.5, 0.7], "calibration_error": [0.1, 0.2]})
        table, notes = measures.quality(Comparison([known, study[2]]))
        assert row(table, "KT-pFL") == {"macro_f1": "60.0 ± 0.0", "calibration_error": "15.0 ± 0.0"}
        assert column(table, "macro_f1")[1] == "–"
        assert list(notes.entries) == ["Macro F1", "Calibration error"]

    def test_a_significant_loss_of_calibration_is_in_the_summary(self, prose, study):
        """Of 20 against 10 %, the same with every seed; without a difference nothing is said."""
        errors = {"kt_pfl": 0.2, "fedmd": 0.1, "local": 0.1}
        measured = [again(each, measures={"calibration_error": [errors[each.method]] * 2}) for each in study]
        said = prose(summary(Comparison(measured)))
        assert said.endswith("Significantly larger calibration error than local-only: KT-pFL (+10.0).")
        assert "calibration" not in summary(Comparison(study))


class TestWork:
    def test_in_units_of_local_only(self, study):
        main, _, local = (
            again(result, work={"samples": [n, 2 * n], "flops": [4e9, 2e9]})
            for n, result in zip((20, 10, 10), study, strict=True)
        )
        table, notes = measures.work(Comparison([main, local]))
        assert row(table, "KT-pFL")["samples"] == "2.00 ± 0.00"
        assert row(table, "Local-only")["samples"] == "1.00 ± 0.00"
        assert "memory" not in keys(table)
        assert row(table, "KT-pFL")["flops"] == "3.00 ± 0"
        assert len(notes.entries) == 4

    def test_memory_is_a_mean_over_clients(self, study):
        local = replace(study[2], runs=[replace(run, memory=[2_000_000, 3_000_000]) for run in study[2].runs])
        assert row(measures.work(Comparison([study[0], local]))[0], "Local-only")["memory"] == "2.50 ± 0"

    def test_when_local_only_was_reached(self, study, run):
        """KT-pFL is above it with every seed after one round and 2 MB, FedMD never, DS-FL with two of three."""
        ds_fl = summarize([run("ds_fl", seed, [(0.1 * seed, 0.1), (0.88, 0.88)]) for seed in range(3)], {})
        table, _ = measures.work(Comparison([*study, ds_fl]))
        reached = [row(table, title)["rounds_to_local"] for title in ("KT-pFL", "FedMD", "DS-FL", "Local-only")]
        assert reached == ["1", "not reached", "2 (2 of 3)", "–"]
        assert row(table, "DS-FL")["traffic_to_local"] == "4.00 (2 of 3)"
        assert "samples" not in keys(table)

    def test_without_local_only_and_without_records(self, study):
        assert measures.work(Comparison(study[:2])) == []


OWN = "ktpfl_pipeline.methods.fedfomo:FedFomo"


@pytest.mark.parametrize(
    ("method", "mark"), [("fedfomo", True), ("kt_pfl_likelihood", True), ("fedavg", False), (OWN, True), ("no", False)]
)
def test_what_fits_on_validation_samples_says_so(run, paper_settings, method, mark):
    result = summarize([run(method)], {})
    assert marked(result).endswith(" †") is mark
    assert ("†" in notes_of(under(paper_settings, [result]))) is mark


def test_defaults_of_a_method_by_its_dotted_path_are_listed(run, paper_settings):
    report = comparison.build("mine", under(paper_settings, [summarize([run(OWN)], {"decay": 0.25})]))
    (section,) = (section for section in report.sections if section.title == "Hyperparameters")
    assert section.blocks[1].groups == {"FedFomo": {"candidates": "5", "explore": "0.3", "decay": "0.25"}}
