"""The report on a tuning: validation accuracy alone chooses, and what is chosen is told with what was tried."""

import csv
import io
import json
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from cases import case
from experiment import ONE_ARCHITECTURE
from report_prose import Prose, words_of
from written import column, records

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import Final, std_over_seeds
from ktpfl_pipeline.analysis.study import Cell, Study, highest, read
from ktpfl_pipeline.config import parsing, studies
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.reports import tuning as report
from ktpfl_pipeline.reports.figures import search_history, search_slices
from ktpfl_pipeline.runs.tuning import chosen

EXPERIMENT = parsing.parse("homo_mine", ONE_ARCHITECTURE)
TUNE = studies.Tune(
    trials=3, seeds=[100, 101], spaces={"ditto": {"coupling": {"low": 0.05, "high": 2.0}}, "topk_pfl": {"k": [1, 2, 5]}}
)


SETTINGS = TUNE.applied(EXPERIMENT).shared()


def candidate(method: str, values: dict[str, Any], *per_seed: float) -> Cell:
    """A candidate with its validation accuracy by seed; one without any diverged."""
    made = Cell("", "homo_mine", "", method, SETTINGS, values, [100, 101], value=values)
    if not per_seed:
        return replace(made, failed="diverged")
    final = Final(fmean(per_seed), std_over_seeds(per_seed), 0.0, [], list(per_seed), 0.0, 0.0)
    ids = [f"{'-'.join(f'{name}-{value}' for name, value in values.items())}-{i}" for i in range(len(per_seed))]
    kept = MethodResult(method, method, {"validation": final}, {}, {}, 1, [100, 101], ids, {}, values, {}, [])
    return replace(made, kept=kept)


def only(tuning: Study, *cells: Cell, **spaces: Any) -> Study:
    """The same tuning with other candidates."""
    asked = {**tuning.asked, "spaces": spaces or tuning.asked["spaces"]}
    return replace(tuning, asked=asked, cells=list(cells))


@pytest.fixture
def tuning() -> Study:
    ditto = [({"coupling": 0.1}, 0.5, 0.7), ({"coupling": 2.0}, 0.7, 0.8), ({"coupling": 1.0},)]
    topk = [({"k": 2}, 0.6, 0.6), ({"k": 5}, 0.6, 0.6), ({"k": 1}, 0.1, 0.2)]
    cells = [
        *(candidate("ditto", *each) for each in ditto),
        *(candidate("topk_pfl", *each) for each in topk),
        candidate("local", {}, 0.4, 0.6),
    ]
    return Study(plain(TUNE), "k", "parent", cells)


class TestHighest:
    def test_the_mean_over_seeds(self, tuning: Study) -> None:
        assert highest(tuning.methods["ditto"]).value == {"coupling": 2.0}

    def test_the_first_of_equals(self, tuning: Study) -> None:
        """So configured values stay where nothing is better."""
        assert highest(tuning.methods["topk_pfl"]).value == {"k": 2}

    def test_none_that_diverged(self, tuning: Study) -> None:
        first, _, diverged = tuning.methods["ditto"]
        assert highest([diverged, first]) is first


def test_what_comparisons_read(tuning: Study) -> None:
    made = chosen(tuning, "homo_mine")
    ditto = made.methods["ditto"]
    assert (ditto.values, ditto.configured) == ({"coupling": 2.0}, {"coupling": 0.1})
    assert (ditto.validation, ditto.configured_validation) == (pytest.approx(0.75), pytest.approx(0.6))
    assert (ditto.trials, ditto.run_ids) == (3, ["coupling-2.0-0", "coupling-2.0-1"])
    assert (made.seeds, made.key, made.run_id, list(made.methods)) == (
        *([100, 101], "k", "parent"),
        ["ditto", "topk_pfl", "local"],
    )


class TestTable:
    def test_a_row_a_method(self, tuning: Study) -> None:
        rows = records(report.table(tuning))
        assert rows[0] == {
            "method": "Ditto",
            "chosen": "coupling=2.0",
            "validation": "75.0 ± 7.1",
            "configured": "coupling=0.1",
            "configured_validation": "60.0 ± 14.1",
            "gain": "+15.0",
            "candidates": "3",
        }
        assert [row["gain"] for row in rows] == ["+15.0", "0.0", "–"]

    def test_a_row_a_trial(self, tuning: Study) -> None:
        table = report.trial_table(tuning)
        assert column(table, "chosen") == ["", "chosen", "", "chosen", "", "", "chosen"]
        assert column(table, "validation")[:3] == ["60.0 ± 14.1", "75.0 ± 7.1", "diverged"]
        assert column(table, "run_ids")[1] == "coupling-2.0-0, coupling-2.0-1"

    def test_configured_values_that_diverged(self, tuning: Study) -> None:
        first, second, diverged = tuning.methods["ditto"]
        made = only(tuning, diverged, first, second)
        (row,) = records(report.table(made))
        assert (row["configured_validation"], row["gain"]) == ("diverged", "–")


class TestSummary:
    def test_what_moved_and_what_lies_at_an_end(self, tuning: Study) -> None:
        text = report.summary(tuning)
        assert "other values than the configured ones for 1 of 2 methods" in text and "at most 3 candidates" in text
        assert "values outside it may be better: Ditto's coupling=2.0." in text
        assert "only 1 seed" not in text

    def test_of_two_values_none_lies_at_an_end(self, tuning: Study) -> None:
        def told(*tried: int) -> str:
            return report.summary(only(tuning, *tuning.methods["topk_pfl"], topk_pfl={"k": list(tried)}))

        assert "k=2" not in told(2, 5)
        assert "values outside it may be better: TopK-pFL's k=2." in told(2, 5, 7)

    def test_one_seed(self, prose: Prose, tuning: Study) -> None:
        said = prose(report.summary(replace(tuning, asked={**tuning.asked, "seeds": [100]})))
        assert said.endswith("With only 1 seed, the order of close candidates may be due to chance.")


class TestReport:
    def test_words(self, prose: Prose, tuning: Study) -> None:
        prose(words_of(report.build("tune_homo_mine", tuning, "{}\n")))

    def test_every_form_tells_the_choice_and_every_run_is_named(self, tuning: Study) -> None:
        made = report.build("tune_homo_mine", tuning, "{}\n")
        assert all("coupling=2.0" in text for text in (made.html, made.markdown, str(made.latex()), made.console))
        assert all("coupling-2.0-1" in text for text in (made.html, made.markdown))
        assert "0.05 to 2.0" in made.html

    def test_the_console_is_no_wider_than_a_terminal(self, tuning: Study) -> None:
        values = {"coupling": 0.0123, "attention": 0.456, "sharpness": 12.5, "decay": 0.001}
        spaces = {"kt_pfl_params": {name: [value, 9.0] for name, value in values.items()}, **tuning.asked["spaces"]}
        made = report.build(
            "tune_homo_mine",
            only(tuning, candidate("kt_pfl_params", values, 0.5, 0.6), *tuning.cells, **spaces),
            "{}\n",
        )
        assert "coupling=0.0123, attention=0.456" in made.console
        assert max(map(len, made.console.splitlines())) <= 100

    def test_the_search_is_drawn(self, tuning: Study) -> None:
        """Ditto's diverged candidate is left out; TopK-pFL has three candidates; local-only has nothing to choose."""
        made = report.build("tune_homo_mine", tuning, "{}\n")
        assert list(made.figures) == ["history", "slice_ditto", "slice_topk_pfl"]
        points = made.figures["slice_ditto"].axes[0].collections[0].get_offsets()
        assert sorted(map(tuple, points.tolist())) == [
            (pytest.approx(0.1), pytest.approx(0.6)),
            (pytest.approx(2.0), pytest.approx(0.75)),
        ]

    def test_the_course_has_the_numbers_of_the_trials(self, tuning: Study) -> None:
        """So a point is found in the table of trials, which counts from 1."""
        *_, marks = search_history({"ditto": tuning.methods["ditto"]}).axes[0].get_lines()
        assert list(marks.get_xdata()) == [1, 2]

    def test_values_that_are_no_numbers_are_side_by_side(self) -> None:
        cells = [candidate("x", {"a": value, "b": value}, 0.5) for value in (None, 1, 10)]
        figure = search_slices({"a": {"low": 1, "high": 10, "log": True}, "b": [None, 1, 10]}, cells[1:])
        assert [axes.get_xscale() for axes in figure.axes] == ["log", "linear"]
        named = search_slices({"a": [None, 1, 10]}, cells).axes[0]
        assert [label.get_text() for label in named.get_xticklabels()] == ["null", "1", "10"]

    def test_csv(self, tuning: Study) -> None:
        rows = list(csv.DictReader(io.StringIO(report.build("tune_homo_mine", tuning, "{}\n").data["trials.csv"])))
        assert [(row["method"], row["values"], row["chosen"]) for row in rows[:3]] == [
            *(("ditto", "coupling=0.1", "0"), ("ditto", "coupling=2.0", "1"), ("ditto", "coupling=1.0", "0")),
        ]
        assert (float(rows[1]["validation"]), rows[2]["validation"]) == (pytest.approx(0.75), "")


class TestRead:
    def test_the_same_settings(self, tuning: Study) -> None:
        assert read("tune_homo_mine", json.loads(json.dumps(tuning.to_dict())), plain(TUNE), [SETTINGS]) == tuning

    def test_other_settings_are_named(self, tuning: Study) -> None:
        for tried, experiment, named in (
            (TUNE, replace(EXPERIMENT, rounds=3), "rounds=30, now 3"),
            (replace(TUNE, trials=5), EXPERIMENT, "trials=3, now 5"),
        ):
            with pytest.raises(InputError) as refused:
                read("tune_homo_mine", tuning.to_dict(), plain(tried), [TUNE.applied(experiment).shared()])
            assert f"tune_homo_mine were made with other settings ({named}); " in str(refused.value)

    def test_the_experiments_own_seeds_do_not_matter(self, tuning: Study) -> None:
        other = TUNE.applied(replace(EXPERIMENT, seeds=[7], hyperparameters="tuned")).shared()
        assert read("tune_homo_mine", tuning.to_dict(), plain(TUNE), [other]) == tuning

    def test_what_is_no_study_is_refused_in_a_sentence(self, tuning: Study) -> None:
        """Trials of earlier versions are among it."""
        written = tuning.to_dict()
        for content in (
            *([], {}, {**written, "cells": 5}, {**written, "more": 1}, {**written, "cells": []}),
            {**written, "cells": [{"value": {}}]},
            {"tune": {}, "settings": {}, "key": "k", "run_id": "", "methods": {}},
        ):
            with (
                case(content),
                pytest.raises(InputError, match=r"^data/07_model_output/tune_x/cells\.json does not read"),
            ):
                read("tune_x", content, plain(TUNE), [SETTINGS])
