"""The small tables beside the main one, from records by hand."""

from dataclasses import replace

import pytest
from written import column, row

from ktpfl_pipeline.analysis.results import summarise
from ktpfl_pipeline.reports import comparison, measures
from ktpfl_pipeline.reports.tables import marked


def again(result, **entries):
    """Return the result with these entries in every round's record of every run."""
    runs = [replace(run, history=[replace(record, **entries) for record in run.history]) for run in result.runs]
    return summarise(runs, {})


class TestFairness:
    def test_cells(self, study):
        """Two clients 10 points around the mean. FedMD's are 9, 8 and 7 points below local-only's: all are harmed."""
        table, notes = measures.fairness(study)
        assert column(table, "Method") == ["KT-pFL", "Local only", "FedMD"]
        assert row(table, "KT-pFL") == {
            "Spread over clients (points)": "10.0 ± 0.0",
            "Worst decile (%)": "80.0 ± 1.0",
            "Harmed (%)": "0.0 ± 0.0",
        }
        assert column(table, "Harmed (%)") == ["0.0 ± 0.0", "–", "100.0 ± 0.0"]
        assert set(notes.entries) == {"Spread over clients", "Worst decile", "Harmed", "Means"}

    def test_without_local_only_nobody_is_harmed(self, study):
        table, notes = measures.fairness(study[:2])
        assert "Harmed (%)" not in table.columns
        assert "Harmed" not in notes.entries

    def test_clients_that_were_never_there_stand_apart(self, study):
        table, notes = measures.fairness([again(result, cohort=[0]) for result in study])
        assert row(table, "FedMD")["Sampled (%)"] == "70.0 ± 2.0"
        assert row(table, "FedMD")["Never sampled (%)"] == "90.0 ± 2.0"
        assert "Sampled, never sampled" in notes.entries


class TestQuality:
    def test_nothing_was_measured(self, study):
        assert measures.quality(study) == []

    def test_columns_and_their_meaning(self, study):
        known = again(study[0], measures={"macro_f1": [0.5, 0.7], "calibration_error": [0.1, 0.2]})
        table, notes = measures.quality([known, study[2]])
        assert row(table, "KT-pFL") == {"Macro F1 (%)": "60.0 ± 0.0", "Calibration error (%)": "15.0 ± 0.0"}
        assert column(table, "Macro F1 (%)")[1] == "–"
        assert list(notes.entries) == ["Macro F1", "Calibration error"]


class TestWork:
    def test_in_units_of_local_only(self, study):
        main, _, local = (
            again(result, work={"samples": [n, 2 * n], "flops": [4e9, 2e9]})
            for n, result in zip((20, 10, 10), study, strict=True)
        )
        table, notes = measures.work([main, local])
        assert row(table, "KT-pFL")[measures.SAMPLES] == "2.00 ± 0.00"
        assert row(table, "Local only")[measures.SAMPLES] == "1.00 ± 0.00"
        assert row(table, "KT-pFL")[measures.FLOPS] == "3.00 ± 0"
        assert len(notes.entries) == 4

    def test_when_local_only_was_reached(self, study, run):
        """KT-pFL is above it with every seed after one round and 2 MB, FedMD never, DS-FL with two of three."""
        ds_fl = summarise([run("ds_fl", seed, [(0.1 * seed, 0.1), (0.88, 0.88)]) for seed in range(3)], {})
        table, _ = measures.work([*study, ds_fl])
        reached = [row(table, title)[measures.ROUNDS] for title in ("KT-pFL", "FedMD", "DS-FL", "Local only")]
        assert reached == ["1", "not reached", "2 (2 of 3)", "–"]
        assert row(table, "DS-FL")[measures.BYTES] == "4.00 (2 of 3)"
        assert measures.SAMPLES not in table.columns

    def test_without_local_only_and_without_records(self, study):
        assert measures.work(study[:2]) == []


@pytest.mark.parametrize(("method", "mark"), [("fedfomo", True), ("kt_pfl_likelihood", True), ("fedavg", False)])
def test_what_fits_on_validation_samples_says_so(run, paper_settings, method, mark):
    result = summarise([run(method)], {})
    assert marked(result).endswith(" †") is mark
    assert ("†" in comparison.notes([result], paper_settings)) is mark
