"""The sections on single clients: who should collaborate, and which model each client keeps."""

import csv
import json
from dataclasses import replace
from typing import Any

import pytest
from finished_runs import make_clients as made
from finished_runs import under
from report_prose import Prose, words_of

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult, summarize
from ktpfl_pipeline.reports import comparison as report
from ktpfl_pipeline.reports import decisions

RULE = {"by": "validation", "margin": 0.0, "minimum": 5}
KT_PFL, LOCAL = (0.9, 0.6, 0.8), (0.7, 0.8, 0.8)


def compared(*results: MethodResult, **rule: Any) -> Comparison:
    settings = {"evaluation": {"choice": {**RULE, **rule}}}
    return under(settings, results or [made("kt_pfl", KT_PFL), made("local", LOCAL)])


class TestDecisions:
    def test_each_client_has_a_row_with_words_that_anybody_understands(self, prose: Prose) -> None:
        said, table, notes = decisions.decisions(compared())
        assert prose(said.text).startswith("KT-pFL is the best method")
        assert "1 should collaborate (north); 1 should stay alone (south); for 1 there is not enough" in said.text
        rows = {str(row["client"]): row for row in table.rows}
        assert list(rows) == ["north", "west", "south"]
        assert [row["decision"] for row in rows.values()] == ["collaborate", "not enough evidence", "stay alone"]
        words = [str(rows[name]["words"]) for name in ("north", "south", "west")]
        told = (
            "gains about 20.0, very likely at least 13.",
            "loses about 20.0, very likely at least 13.",
            "may gain 1.",
        )
        assert all(word.startswith(each) for word, each in zip(words, told, strict=True))
        assert [str(rows["north"][name]) for name in ("samples", "classes", "alone", "together")] == [
            *("400", "2"),
            *("70.0", "90.0"),
        ]
        assert rows["north"]["teachers"] == "itself 93 %"
        assert "stay alone: it is worse" in notes.entries["Decision"]

    def test_without_evidence_for_any_client_this_is_said_with_what_would_help(self) -> None:
        alike = compared(made("kt_pfl", (0.8,) * 3), made("local", (0.8,) * 3))
        assert decisions.outcome(alike).endswith(
            "There is not enough evidence for any client to decide. More seeds or more test samples may give it."
        )

    def test_files_terminal_and_page_have_it(self, prose: Prose, blank_figures: None) -> None:
        made_ = report.build("compare_x", compared())
        console, words = " ".join(made_.console.split()), prose(words_of(made_))
        for text in (decisions.outcome(compared()), decisions.chosen(compared())):
            assert text in console and text in words
        assert "Client Decision" in console
        assert "Decision of each client" in made_.html
        (first, *_), decided = (
            csv.DictReader(made_.data["decisions.csv"].splitlines()),
            json.loads(made_.data["comparison.json"]),
        )
        assert (first["client"], first["decision"], first["method"], first["minus"]) == (
            "north",
            "collaborate",
            "kt_pfl",
            "local",
        )
        assert float(first["error"]) > 0
        assert [each["decision"] for each in decided["decisions"]] == [
            "collaborate",
            "not enough evidence",
            "stay alone",
        ]
        (kept,) = csv.DictReader(made_.data["choices.csv"].splitlines())
        assert (kept["method"], float(kept["keeping"]), kept["right"], kept["judged"]) == ("kt_pfl", 1.0, "6", "6")
        rows = list(csv.DictReader(made_.data["clients.csv"].splitlines()))
        assert (float(rows[0]["chosen"]), rows[0]["test_samples"]) == (pytest.approx(0.9), "200")
        again = Comparison.from_dict(decided)
        assert again.main.final["chosen"].mean == pytest.approx((0.9 + 0.8 + 0.8) / 3)

    def test_the_terminal_shows_at_most_twelve_clients_and_the_page_at_most_fifty(self, blank_figures: None) -> None:
        names = [f"clinic {n}" for n in range(60)]
        gains = tuple(0.5 + n / 200 for n in range(60))
        many = compared(made("kt_pfl", gains, names), made("local", (0.6,) * 60, names))
        assert decisions.brief(many) == []
        _, table, notes = decisions.decisions(many)
        assert [str(row["client"]) for row in (table.rows[0], table.rows[-1])] == ["clinic 59", "clinic 0"]
        assert len(table.rows) == 50
        assert "decisions.csv has all 60" in notes.entries["Clients"]

    def test_clients_of_other_seeds_are_not_the_same(self) -> None:
        kt_pfl, local = made("kt_pfl", KT_PFL, names=[]), made("local", LOCAL, names=[])
        runs = [replace(run, label_counts=[[run.seed, 9]] * 3) for run in kt_pfl.runs]
        *_, notes = decisions.decisions(compared(summarize(runs, {}), local))
        assert "each seed gives a client other samples" in notes.entries["Data"]

    def test_where_nothing_was_learned_nobody_decides(self) -> None:
        same = {"predicted": [1] * 3, "majority": [0.5] * 3}
        both = [made(name, (0.5, 0.5, 0.5), **same) for name in ("kt_pfl", "local")]
        assert decisions.decisions(compared(*both)) == []
        assert decisions.outcome(compared(*both)) == ""

    def test_equal_weights_name_nobody(self) -> None:
        equal = [[1 / 3] * 3] * 3
        runs = [replace(run, coefficients=equal) for run in made("kt_pfl", KT_PFL).runs]
        _, table, _ = decisions.decisions(compared(summarize(runs, {}), made("local", LOCAL)))
        assert {row["teachers"] for row in table.rows} == {"all about equally"}


class TestChoice:
    def test_it_is_right_where_the_validation_samples_are(self) -> None:
        said, table, _ = decisions.choice(compared())
        assert (
            "from local-only by +6.7 percentage points, 95 % interval [+6.7, +6.7]. On average, 1.0 of 3 " in said.text
        )
        assert "lose more than 1 point is 33 % before the choice and 0 % after it" in said.text
        (row,) = table.rows
        shown = ("chosen", "chosen_minus_local", "keeping", "losing_before", "losing_after", "right", "better")
        assert [str(row[name]) for name in shown] == [
            *("83.3 ± 0.0", "+6.7 [+6.7, +6.7]", "1.0 ± 0.0"),
            *("33.3 ± 0.0", "0.0 ± 0.0", "100.0", "50.0"),
        ]

    def test_holm_covers_the_chosen_models_of_all_methods(self) -> None:
        comparison = compared(made("kt_pfl", KT_PFL), made("fedmd", KT_PFL), made("local", LOCAL))
        assert {found.family for found in comparison.gains("chosen").values() if found} == {2}

    def test_clients_with_too_few_samples_are_named(self, prose: Prose) -> None:
        sizes = {"train": [9] * 3, "validation": [20, 3, 0], "test": [200] * 3}
        *_, notes = decisions.choice(
            compared(*(made(m, v, samples=sizes) for m, v in (("kt_pfl", KT_PFL), ("local", LOCAL))))
        )
        without, few = notes.entries["Without validation samples"], notes.entries["Too few validation samples"]
        assert prose(without, "none").startswith("west. They have no choice")
        assert prose(few, "few").startswith("south: fewer than 5. They keep their own model")

    @pytest.mark.parametrize("samples", [{"train": [9] * 3, "validation": [0] * 3, "test": [200] * 3}, {}])
    def test_without_validation_samples_it_says_why(self, prose: Prose, samples: dict[str, list[int]]) -> None:
        both = [made(m, v, samples=samples) for m, v in (("kt_pfl", KT_PFL), ("local", LOCAL))]
        (text,) = decisions.choice(compared(*both))
        why = "set partition.validation_share above 0." if samples else "these runs do not hold"
        assert prose(text.text).startswith("No client chooses, because") and why in text.text
        assert decisions.choice(compared(*both, by="none")) == []
