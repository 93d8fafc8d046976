"""The report on a tuning: validation accuracy alone chooses, and what is chosen is told with what was tried."""

import csv
import io
from dataclasses import asdict, replace
from typing import Any

import pytest
from cases import case
from experiment import ONE_ARCHITECTURE
from written import column, records

from ktpfl_pipeline.analysis.trials import Trial, Tuning, highest
from ktpfl_pipeline.config import parsing, studies
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.pipelines.tune import trials
from ktpfl_pipeline.reports import tuning as report
from ktpfl_pipeline.reports.figures import importance_is_known, optuna_study

EXPERIMENT = parsing.parse("homo_mine", ONE_ARCHITECTURE)
TUNE = studies.Tune(
    trials=3, seeds=[100, 101], spaces={"ditto": {"coupling": {"low": 0.05, "high": 2.0}}, "topk_pfl": {"k": [1, 2, 5]}}
)


def trial(name: str, value: Any, *per_seed: float) -> Trial:
    return Trial({name: value}, {name: value}, list(per_seed), [f"{name}-{value}-{i}" for i in range(len(per_seed))])


@pytest.fixture
def tuning() -> Tuning:
    return Tuning(
        tune=plain(TUNE),
        settings=TUNE.applied(EXPERIMENT).shared(),
        key="k",
        run_id="parent",
        methods={
            "ditto": [trial("coupling", 0.1, 0.5, 0.7), trial("coupling", 2.0, 0.7, 0.8), trial("coupling", 1.0)],
            "topk_pfl": [trial("k", 2, 0.6, 0.6), trial("k", 5, 0.6, 0.6), trial("k", 1, 0.1, 0.2)],
            "local": [Trial({}, {}, [0.4, 0.6], ["a", "b"])],
        },
    )


class TestHighest:
    def test_the_mean_over_seeds(self, tuning: Tuning) -> None:
        assert highest(tuning.methods["ditto"]).changes == {"coupling": 2.0}

    def test_the_first_of_equals(self, tuning: Tuning) -> None:
        """So configured values stay where nothing is better."""
        assert highest(tuning.methods["topk_pfl"]).changes == {"k": 2}

    def test_none_that_diverged(self, tuning: Tuning) -> None:
        first, _, diverged = tuning.methods["ditto"]
        assert highest([diverged, first]) is first


def test_what_comparisons_read(tuning: Tuning) -> None:
    made = trials.chosen(tuning, "homo_mine")
    ditto = made.methods["ditto"]
    assert (ditto.values, ditto.configured) == ({"coupling": 2.0}, {"coupling": 0.1})
    assert (ditto.validation, ditto.configured_validation) == (pytest.approx(0.75), pytest.approx(0.6))
    assert (ditto.trials, ditto.run_ids) == (3, ["coupling-2.0-0", "coupling-2.0-1"])
    assert (made.seeds, made.key, made.run_id, list(made.methods)) == (
        *([100, 101], "k", "parent"),
        ["ditto", "topk_pfl", "local"],
    )


class TestTable:
    def test_a_row_a_method(self, tuning: Tuning) -> None:
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

    def test_a_row_a_trial(self, tuning: Tuning) -> None:
        table = report.trial_table(tuning)
        assert column(table, "chosen") == ["", "chosen", "", "chosen", "", "", "chosen"]
        assert column(table, "validation")[:3] == ["60.0 ± 14.1", "75.0 ± 7.1", "diverged"]
        assert column(table, "run_ids")[1] == "coupling-2.0-0, coupling-2.0-1"

    def test_configured_values_that_diverged(self, tuning: Tuning) -> None:
        first, second, diverged = tuning.methods["ditto"]
        made = replace(tuning, methods={"ditto": [diverged, first, second]})
        (row,) = records(report.table(made))
        assert (row["configured_validation"], row["gain"]) == ("diverged", "–")


class TestSummary:
    def test_what_moved_and_what_lies_at_an_end(self, tuning: Tuning) -> None:
        text = report.summary(tuning)
        assert "for 1 of 2 methods with hyperparameters to choose, among at most 3 candidates each." in text
        assert "better values may lie beyond: Ditto's coupling=2.0." in text
        assert "With one seed" not in text

    def test_of_two_values_none_lies_at_an_end(self, tuning: Tuning) -> None:
        def told(*tried: int) -> str:
            tune = {**tuning.tune, "spaces": {"topk_pfl": {"k": list(tried)}}}
            return report.summary(replace(tuning, tune=tune, methods={"topk_pfl": tuning.methods["topk_pfl"]}))

        assert "k=2" not in told(2, 5)
        assert "better values may lie beyond: TopK-pFL's k=2." in told(2, 5, 7)

    def test_one_seed(self, tuning: Tuning) -> None:
        one = report.summary(replace(tuning, tune={**tuning.tune, "seeds": [100]}))
        assert one.endswith(
            "With 1 seed, and an interval needs at least 3, so close candidates may not differ significantly."
        )


class TestReport:
    def test_every_form_tells_the_choice_and_every_run_is_named(self, tuning: Tuning) -> None:
        made = report.build("tune_homo_mine", tuning, "{}\n")
        assert all("coupling=2.0" in text for text in (made.html, made.markdown, made.latex, made.console))
        assert all("coupling-2.0-1" in text for text in (made.html, made.markdown))
        assert "0.05 to 2.0" in made.html

    def test_the_console_is_no_wider_than_a_terminal(self, tuning: Tuning) -> None:
        many = Trial({"coupling": 0.0123, "attention": 0.456, "sharpness": 12.5, "decay": 0.001}, {}, [0.5, 0.6], [])
        spaces = {
            "kt_pfl_params": {name: [value, 9.0] for name, value in many.changes.items()},
            **tuning.tune["spaces"],
        }
        methods = {"kt_pfl_params": [many], **tuning.methods}
        made = report.build(
            "tune_homo_mine", replace(tuning, tune={**tuning.tune, "spaces": spaces}, methods=methods), "{}\n"
        )
        assert "coupling=0.0123, attention=0.456" in made.console
        assert max(map(len, made.console.splitlines())) <= 100

    def test_the_search_is_drawn_by_optuna(self, tuning: Tuning) -> None:
        """Ditto's diverged candidate is left out; TopK-pFL has three candidates; local-only has nothing to choose."""
        made = report.build("tune_homo_mine", tuning, "{}\n")
        assert list(made.figures) == ["history", "slice_ditto", "slice_topk_pfl"]
        points = made.figures["slice_ditto"].axes[0].collections[0].get_offsets()
        assert sorted(map(tuple, points.tolist())) == [
            (pytest.approx(0.1), pytest.approx(0.6)),
            (pytest.approx(2.0), pytest.approx(0.75)),
        ]

    def test_importance_needs_two_hyperparameters_and_enough_candidates(self) -> None:
        def known(count: int, *names: str) -> bool:
            found = [Trial(dict.fromkeys(names, n), {}, [0.1 * n], []) for n in range(1, count + 1)]
            return importance_is_known(optuna_study("x", {name: [1, 9] for name in names}, found))

        assert [known(4, "a", "b"), known(3, "a", "b"), known(4, "a")] == [True, False, False]

    def test_csv(self, tuning: Tuning) -> None:
        rows = list(csv.DictReader(io.StringIO(report.build("tune_homo_mine", tuning, "{}\n").data["trials.csv"])))
        assert [(row["method"], row["values"], row["chosen"]) for row in rows[:3]] == [
            *(("ditto", "coupling=0.1", "0"), ("ditto", "coupling=2.0", "1"), ("ditto", "coupling=1.0", "0")),
        ]
        assert (float(rows[1]["validation"]), rows[2]["validation"]) == (pytest.approx(0.75), "")


class TestParse:
    def test_the_same_settings(self, tuning: Tuning) -> None:
        assert trials.parse("tune_homo_mine", asdict(tuning), TUNE, EXPERIMENT) == tuning

    def test_other_settings_are_named(self, tuning: Tuning) -> None:
        for tried, experiment, named in (
            (TUNE, replace(EXPERIMENT, rounds=3), "rounds=30, now 3"),
            (replace(TUNE, trials=5), EXPERIMENT, "tune.trials=3, now 5"),
        ):
            with pytest.raises(InputError) as refused:
                trials.parse("tune_homo_mine", asdict(tuning), tried, experiment)
            assert f"tune_homo_mine were made with other settings ({named}); " in str(refused.value)

    def test_the_experiments_own_seeds_do_not_matter(self, tuning: Tuning) -> None:
        other = replace(EXPERIMENT, seeds=[7], hyperparameters="tuned")
        assert trials.parse("tune_homo_mine", asdict(tuning), TUNE, other) == tuning

    def test_what_is_no_tuning_is_refused_in_a_sentence(self, tuning: Tuning) -> None:
        plain = tuning.to_dict()
        for content in (
            *([], {}, {**plain, "methods": 5}, {**plain, "more": 1}, {**plain, "methods": {"local": []}}),
            {**plain, "methods": {"local": [{"changes": {}}]}},
        ):
            with (
                case(content),
                pytest.raises(InputError, match=r"^data/07_model_output/tune_x/trials\.json does not rea"),
            ):
                trials.parse("tune_x", content, TUNE, EXPERIMENT)
