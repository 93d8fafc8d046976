"""Accuracy by class, the confusion matrix, and the majority-class baseline."""

import csv
import math
from dataclasses import replace

import blank
import pytest
from finished_runs import under
from written import keys, row

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.frames import to_csv
from ktpfl_pipeline.analysis.results import MethodResult, recalls, summarize
from ktpfl_pipeline.reports import comparison, measures, notes, tables
from ktpfl_pipeline.reports.answer import adapted, tiles
from ktpfl_pipeline.reports.words import MAJORITY

AUC = {"kt_pfl": 0.9, "fedmd": 0.7, "local": 0.8}
CALIBRATION = {"kt_pfl": 0.3, "fedmd": 0.5, "local": 0.1}


@pytest.fixture
def judged(study):
    """The study's results with three classes, the last of which no client has; AUC and calibration are constant."""

    def with_classes(result, **settings):
        runs = [
            replace(
                run,
                confusion=[[3, 1, 0], [2, 2, 0], [0, 0, 0]],
                class_names=["benign", "malignant $x$", "other"],
                majority=[0.5, 0.7],
                history=[
                    replace(
                        record,
                        measures={
                            "auc": [AUC[run.method], math.nan],
                            "calibration_error": [CALIBRATION[run.method]] * 2,
                        },
                    )
                    for record in run.history
                ],
            )
            for run in result.runs
        ]
        return summarize(runs, {}, settings)

    return lambda **settings: [with_classes(result, **settings) for result in study]


def test_accuracy_by_class(judged):
    assert recalls(judged()[0].runs) == [0.75, 0.5, None]
    table = measures.by_class(Comparison(judged()))[0]
    assert [str(row[0]) for row in table.entries] == ["benign", "malignant $x$", "other"]
    assert [str(row[2]) for row in table.entries[:2]] == ["75.0 ± 0.0", "50.0 ± 0.0"]
    assert table.entries[2][2] is None


def test_a_client_without_a_measure_counts_in_no_mean(judged):
    assert judged()[0].final["auc"].mean == pytest.approx(0.9)
    assert judged()[0].runs[0].measures["auc"] == [0.9, pytest.approx(math.nan, nan_ok=True)]


def test_results_with_classes_are_kept(judged):
    made = judged()[0].runs[0]
    kept = MethodResult.from_dict(judged()[0].to_dict()).runs[0]
    assert (kept.confusion, kept.class_names, kept.majority) == (made.confusion, made.class_names, made.majority)


class TestMajority:
    def test_stands_in_the_table_with_its_difference_to_local_only(self, prose, judged):
        """60 % with every seed; local-only has 87, 88 and 89: 28 below. It is no method and is not tested."""
        table = tables.comparison_table(Comparison(judged()))
        last = {key: str(entry) for key, entry in table.rows[-1].items()}
        assert (last["method"], last["after_transfer"]) == ("Majority class", "60.0 ± 0.0")
        assert last["minus_local"] == "−28.0"
        assert "not tested" in prose(notes.general_notes(Comparison(judged()))["Majority class"])

    def test_is_told_next_to_local_only(self, prose, judged):
        (note,) = [tile.note for tile in tiles(Comparison(judged())) if tile.title == "Local-only"]
        assert "most frequent class: 60.0 %" in prose(note)

    def test_is_unknown_where_labels_stay_with_clients(self, study):
        assert Comparison(study).majority == {}
        assert measures.by_class(Comparison(study)) == []
        assert MAJORITY.title not in [row["method"] for row in tables.comparison_table(Comparison(study)).rows]


class TestNothingLearned:
    def of(self, study, *predicted, **settings):
        """The three methods; `predicted` are the numbers of classes that both clients' models predict, by method."""
        numbers = zip(study, predicted, strict=True)
        return under(
            settings,
            [
                replace(each, runs=[replace(run, predicted=classes, majority=[0.5, 0.7]) for run in each.runs])
                for each, classes in numbers
            ],
        )

    def test_is_said_first_with_likely_causes(self, prose, study):
        made = self.of(study, [1, 1], [1, 1], [1, 1], training={"learning_rate": 0.001, "epochs": 2})
        said = prose(comparison.summary(made))
        assert said.startswith("Nothing was learned: with every method") and "one class for all samples" in said
        assert "60.0 %" in said and said.endswith("1 round, learning_rate 0.001, epochs 2.")
        with blank.blank_figures():
            built = comparison.build("x", made)
        assert "Against local-only" not in [section.title for section in built.sections]
        assert "do not differ" not in built.markdown

    def test_single_models_are_counted_by_method(self, prose, study):
        made = self.of(study, [1, 3], [2, 3], [1, 1])
        said = prose(notes.alerts(made)["One class"])
        assert "one class" in said and "3 of 6 with KT-pFL, 6 of 6 with Local-only" in said
        assert comparison.summary(made).startswith("KT-pFL is 2.0 percentage points above")

    def under_majority(self, study, majority, **settings):
        """The three methods where always predicting one class has this accuracy, with 1000 test samples a run."""
        runs = {"majority": [majority] * 2, "confusion": [[400, 100], [100, 400]]}
        return under(settings, [replace(each, runs=[replace(run, **runs) for run in each.runs]) for each in study])

    def test_is_also_said_if_no_method_is_above_the_most_frequent_class(self, prose, study):
        level = [replace(study[0], method=each.method, title=each.title) for each in study]  # all with equal values
        best = max(final.mean for final in study[0].final.values())
        made = self.under_majority(level, best + 0.01)
        said = prose(comparison.summary(made))
        assert said.startswith("Nothing was learned: no method is above")
        assert f"{100 * best + 1:.1f} %, and the best method, KT-pFL" in said
        assert "the same mean" not in said and "`headline: balanced_accuracy`" in said
        assert self.under_majority(level, best - 0.01).nothing_learned, "within two standard errors of 3000 samples"
        assert not self.under_majority(level, best - 0.03).nothing_learned

    def test_a_significant_difference_is_stated_also_below_the_most_frequent_class(self, prose, study):
        made = self.under_majority(study, 0.9)
        said = prose(comparison.summary(made))
        assert said.startswith("Note that no method is above") and "KT-pFL is 2.0 percentage points above local" in said

    def test_another_headline_than_accuracy_is_not_compared_with_it(self, judged):
        made = self.under_majority(judged(), 0.95, headline="auc")
        assert not made.above_majority
        assert comparison.summary(made).startswith("KT-pFL is 10.0 percentage points above local-only training in AUC")

    def test_nothing_is_above_a_single_class(self, study):
        assert self.under_majority(study, 1.0).above_majority

    def test_a_client_with_one_class_learns_by_naming_it(self, study):
        runs = [replace(run, predicted=[1, 2], majority=[1.0, 0.7]) for run in study[0].runs]
        made = Comparison([replace(study[0], runs=runs)])
        assert made.constant == {"kt_pfl": (0, 3)}
        assert not made.nothing_learned
        assert not Comparison(study).nothing_learned, "what was predicted is unknown"


class TestHeadline:
    def test_another_metric_leads(self, prose, judged):
        results = judged(headline="auc")
        assert Comparison(results).headline == "auc"
        said = prose(comparison.summary(Comparison(results)))
        assert said.startswith("KT-pFL is 10.0 percentage points above local-only training in AUC")
        assert "a significant difference: 95 % interval [+10.0, +10.0]" in said
        table = tables.comparison_table(Comparison(results))
        assert [str(row[0]) for row in table.entries[:3]] == ["KT-pFL", "Local-only", "FedMD"]
        assert keys(table)[1] == "auc"
        assert tiles(Comparison(results))[0].value == "90.0 ± 0.0 % in AUC"
        assert [column.title for column in table.columns[1:5]] == [
            *("AUC", "After transfer", "After local training", "Minus local-only in AUC")
        ]
        meanings = tables.meanings_of(Comparison(results))
        assert meanings["auc"].endswith("This is the headline.")
        assert "headline" not in meanings["after_transfer"]
        assert not any("most frequent class" in tile.note for tile in tiles(Comparison(results))), (
            "its accuracy is no AUC"
        )

    def test_accuracy_leads_where_a_result_does_not_have_the_metric(self, prose, study):
        led = [replace(each, settings={"headline": "auc"}) for each in study]
        assert Comparison(led).headline == "after_transfer"
        said = prose(notes.remarks(Comparison(led))["Headline"])
        assert "(KT-pFL, FedMD, Local-only)" in said and "accuracy leads" in said
        assert "Headline" not in notes.remarks(Comparison(study))


class TestSubject:
    def test_is_the_method_that_is_asked_for(self, prose, judged):
        results = judged(subject="fedmd")
        assert Comparison(results).main.method == "fedmd"
        assert "Subject" not in notes.remarks(Comparison(results))
        said = prose(notes.remarks(Comparison(judged(subject="feddf")))["Subject"])
        assert "feddf, which is not among" in said and "KT-pFL leads" in said
        assert comparison.summary(Comparison(results)).startswith("FedMD is 8.0 percentage points below local-only")

    def test_is_kt_pfl_where_it_is_compared(self, judged, result):
        assert Comparison(judged()[::-1]).main.method == "kt_pfl"
        assert Comparison(judged(subject="ditto")).main.method == "kt_pfl"
        assert Comparison([result("local", 0.5), result("fedmd", 0.5)]).main.method == "fedmd"


def test_calibration_is_tested_against_local_only_and_stands_second(judged):
    with blank.blank_figures():
        made = comparison.build("x", Comparison(judged()))
    table = made.tables["quality"]
    assert row(table, "FedMD")["calibration_error_minus_local"] == "**+40.0** [+40.0, +40.0]"
    titles = [section.title for section in made.sections]
    assert titles.index("Other measures and calibration") == titles.index("Accuracy") + 1
    assert "calibration_error" in made.files["differences.csv"]
    assert "malignant" in made.html


def test_names_of_classes_are_text_in_every_file(judged):
    files = {name: to_csv(frame) for name, frame in Comparison(judged()).frames.items()}
    found = list(csv.DictReader(files["classes"].splitlines()))
    assert [row["name"] for row in found[:3]] == ["benign", "malignant $x$", "other"]
    assert [row["accuracy"] for row in found[:3]] == ["0.75", "0.5", ""]
    mistaken = list(csv.DictReader(files["confusion"].splitlines()))[1]
    assert (mistaken["true"], mistaken["predicted"], mistaken["samples"]) == ("benign", "malignant $x$", "1")
    assert {row["majority_class"] for row in csv.DictReader(files["clients"].splitlines())} == {"0.5", "0.7"}


def test_a_name_that_a_spreadsheet_would_run_is_text(study):
    named = [replace(run, names=["=cmd|' /C calc'!A0", "Ulm"]) for run in study[0].runs]
    clients = to_csv(Comparison([replace(study[0], runs=named)]).frames["clients"])
    assert [row["owner"] for row in csv.DictReader(clients.splitlines())][:2] == ["'=cmd|' /C calc'!A0", "Ulm"]


class TestTies:
    def test_a_tie_is_said_to_be_one(self, result):
        results = [result(name, 0.8, 0.8, 0.8) for name in ("fedproto", "kt_pfl", "local")]
        assert [each.method for each in Comparison(results).leaders("after_transfer")] == [
            "kt_pfl",
            "local",
            "fedproto",
        ]
        assert "highest mean" not in comparison.summary(Comparison(results))

    def test_after_adaptation(self, prose, run):
        rounds = [(0.8, 0.8)]
        results = []
        for name in ("kt_pfl", "fedproto", "local"):
            made = run(name, 0, rounds)
            history = [replace(r, accuracy={**r.accuracy, "adapted_1": [0.9, 0.9]}) for r in made.history]
            results.append(summarize([replace(made, history=history)], {}))
        said = prose(adapted(Comparison(results)))
        assert said.endswith("KT-pFL, Local-only and FedProto have the same highest mean, 90.0 %.")
