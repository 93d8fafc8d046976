"""One setting at several values: the table, the choice on validation data, the page."""

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from cases import case
from matplotlib.figure import Figure
from report_prose import Prose, words_of
from written import column, keys, rows

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult, summarize
from ktpfl_pipeline.analysis.study import Cell, Study, chosen, read, touched
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.reports import sweep, words
from ktpfl_pipeline.reports.figures import accuracy_by_value
from ktpfl_pipeline.reports.model import Notes
from ktpfl_pipeline.reports.report import Report

SETTINGS: dict[str, Any] = {
    "seeds": [0, 1, 2],
    "private": {"source": "digits", "classes": None},
    "partition": {"scheme": "two_labels"},
    "training": {"epochs": 5},
}
RHO = "methods.kt_pfl.rho"
SWEEP: dict[str, Any] = {"experiment": "mine", "parameter": RHO, "values": [0.1, 0.3, 0.7], "methods": ["kt_pfl"]}
Make = Callable[..., MethodResult]


@pytest.fixture(scope="session")
def made(run: Callable[..., Any]) -> Make:
    """Make a result from the test accuracies by seed, the validation accuracy, and what its runs depend on."""

    def make(
        method: str, *tests: float, validation: float | None = None, key: Any = "", hyper: dict[str, Any] | None = None
    ) -> MethodResult:
        runs = []
        for seed, test in enumerate(tests):
            own = run(method, seed, [(test - 0.1, test + 0.1)], run_id=f"{method}-{key}-{seed}")
            checked = {} if validation is None else {"validation": [validation, validation]}
            (record,) = own.history
            history = [replace(record, accuracy={**record.accuracy, **checked})]
            runs.append(replace(own, history=history, key=f"{method}-{key}-{seed}"))
        return summarize(runs, hyper or {})

    return make


def variant(value: Any, settings: dict[str, Any], methods: dict[str, MethodResult]) -> Comparison:
    """Return the results of a value, made with these settings."""
    return Comparison([replace(each, settings=settings) for each in methods.values()], value)


@pytest.fixture(scope="module")
def variants(made: Make) -> list[Comparison]:
    """KT-pFL is best at 0.7 on test and at 0.3 on validation images; local-only does not depend on ρ."""
    local = made("local", 0.80, 0.81, 0.82, validation=0.8)
    tests = {0.1: (0.80, 0.80, 0.80), 0.3: (0.82, 0.84, 0.86), 0.7: (0.90, 0.91, 0.92)}
    validations = {0.1: 0.70, 0.3: 0.95, 0.7: 0.85}
    return [
        variant(
            rho,
            SETTINGS,
            {
                "kt_pfl": made("kt_pfl", *tests[rho], validation=validations[rho], key=rho, hyper={"rho": rho, "a": 1}),
                "local": local,
            },
        )
        for rho in (0.1, 0.3, 0.7)
    ]


@pytest.fixture(scope="module")
def built(variants: list[Comparison]) -> Report:
    return sweep.build("sweep_rho", RHO, variants)


@pytest.mark.usefixtures("blank_figures")
def test_a_hyperparameter_of_an_own_method_has_its_name(variants: list[Comparison]) -> None:
    built = sweep.build("sweep_tau", "methods.my_package.entropy:EntropyMD.tau", variants)
    assert built.facts[0].startswith("tau: ")
    assert "my_package" not in built.html
    assert sweep.title_of("training.learning_rate") == "training.learning_rate"


def without(variants: Sequence[Comparison], method: str) -> list[Comparison]:
    return [replace(p, given=[r for r in p.given if r.method != method]) for p in variants]


class TestChoice:
    def test_validation_chooses_and_test_does_not(self, variants: list[Comparison]) -> None:
        assert chosen(variants, "kt_pfl") is variants[1]

    def test_a_method_that_the_setting_does_not_touch_has_no_choice(self, variants: list[Comparison]) -> None:
        assert not touched(variants, "local")
        assert chosen(variants, "local") is None

    def test_other_bytes_are_a_difference_too(self, made: Make) -> None:
        """Predictions in half the bytes may leave every accuracy as it is."""
        one = made("kt_pfl", 0.8, validation=0.5)
        other = replace(one, traffic={name: size // 2 for name, size in one.traffic.items()})
        given = [variant(e, SETTINGS, {"kt_pfl": each}) for e, each in (("float32", one), ("float16", other))]
        assert touched(given, "kt_pfl")
        assert not touched([given[0], given[0]], "kt_pfl")

    def test_the_first_of_equals(self, made: Make) -> None:
        equal = [variant(e, SETTINGS, {"local": made("local", 0.1 * e, validation=0.5, key=e)}) for e in (1, 2)]
        assert chosen(equal, "local") is equal[0]

    def test_without_validation_images_nothing_is_chosen(self, made: Make) -> None:
        blind = [variant(e, SETTINGS, {"local": made("local", 0.1 * e, key=e)}) for e in (1, 2)]
        assert chosen(blind, "local") is None
        assert "test accuracy must not choose" in sweep.summary(blind, "E")
        shown = sweep.table(sweep.table_rows(blind), "E")
        assert "validation" not in keys(shown)
        assert "chosen" not in keys(shown)

    @pytest.mark.parametrize(
        ("group", "values"),
        [
            ("availability", (0.5, 1.0)),
            ("stragglers", ({"share": 0.0}, {"share": 0.5})),
            ("partition", ({"test_share": 0.1}, {"test_share": 0.2})),
        ],
    )
    def test_what_the_federation_is_like_is_nobodys_choice(self, made: Make, group: str, values: Any) -> None:
        given = [
            variant(value, {**SETTINGS, group: value}, {"local": made("local", test, validation=0.5, key=str(value))})
            for value, test in zip(values, (0.5, 0.6), strict=True)
        ]
        assert chosen(given, "local") is None
        assert "cannot be chosen" in sweep.summary(given, group)

    def test_each_value_has_an_answer_where_none_can_be_chosen(self, prose: Prose, made: Make) -> None:
        """One partition where exchange pays, and one where it does not."""
        same, other = ((0.90, 0.89, 0.91), (0.90, 0.92, 0.91)), ((0.80, 0.79, 0.81), (0.80, 0.82, 0.81))
        given = self.partitions(made, {"iid": ((0.80, 0.81, 0.82), (0.70, 0.71, 0.72)), "two_labels": same})
        said = prose(sweep.summary(given, "partition"))
        first = "Exchanging knowledge is shown to help at 1 of 2 values of Partition: same class mix (iid). "
        assert said.startswith(first)
        assert "Partition same class mix (iid): significantly above local-only training: KT-pFL (+10.0)." in said
        assert "Partition two_labels: no method is shown to differ: KT-pFL (−1.0)." in said
        built = sweep.build("sweep_first_run", "partition", given)
        assert {"differences", "accuracy"} <= built.figures.keys() and "chosen" not in keys(built.brief[0])
        assert "cannot be chosen" in words_of(built)
        nowhere = self.partitions(made, {"iid": other, "two_labels": same})
        assert "shown to help at no value of Partition." in sweep.summary(nowhere, "partition")

    def partitions(self, made: Make, tests: dict[str, Any]) -> list[Comparison]:
        """Return variants by partition, from the test accuracies of KT-pFL and of local-only training."""
        return [
            variant(
                {"scheme": scheme},
                {**SETTINGS, "partition": {"scheme": scheme}},
                {
                    "kt_pfl": made("kt_pfl", *theirs, validation=0.5, key=scheme),
                    "local": made("local", *own, validation=0.5, key=scheme),
                },
            )
            for scheme, (theirs, own) in tests.items()
        ]

    def test_one_value_is_no_choice(self, prose: Prose, variants: list[Comparison]) -> None:
        assert chosen(variants[:1], "kt_pfl") is None
        assert "No value of ρ was chosen: there is only one" in prose(sweep.summary(variants[:1], RHO))

    def test_runs_of_their_own_with_the_same_accuracy_are_no_choice(self, prose: Prose, made: Make) -> None:
        """Local-only runs with each |D_r|, which is among its settings, and comes out the same."""
        same = [variant(b, SETTINGS, {"local": made("local", 0.5, 0.6, validation=0.5, key=b)}) for b in (100, 500)]
        assert chosen(same, "local") is None
        assert [row.value for row in sweep.table_rows(same)] == ["any"]
        assert "No value of |D_r| was chosen: it made no difference" in prose(sweep.summary(same, "|D_r|"))

    def test_validation_on_other_images_chooses_nothing(self, made: Make) -> None:
        """A public set that is split off the private images leaves the clients fewer."""
        variants = [
            variant(source, SETTINGS, {"local": made("local", test, validation=0.5, key=source)})
            for source, test in (("mnist", 0.5), ("open_part", 0.4))
        ]
        assert chosen(variants, "local") is variants[0]
        result = variants[1].methods["local"]
        (run,) = result.runs
        fewer = replace(run, label_counts=[[count // 2 for count in row] for row in run.label_counts])
        variants[1] = replace(variants[1], given=[replace(result, runs=[fewer])])
        assert chosen(variants, "local") is None
        assert "which samples the clients own" in sweep.summary(variants, "Public data")

    def test_a_setting_that_decides_the_skew_of_the_clients_has_it_in_a_column(self, made: Make) -> None:
        apart = [[5, 0, 0], [0, 5, 0]]
        variants = [
            variant(alpha, SETTINGS, {"local": made("local", test, key=alpha)})
            for alpha, test in ((0.1, 0.5), (1.0, 0.4))
        ]
        result = variants[0].methods["local"]
        runs = [replace(run, label_counts=apart) for run in result.runs]
        variants[0] = replace(variants[0], given=[replace(result, runs=runs)])
        rows = sweep.table_rows(variants)
        first, second = column(sweep.table(rows, "α"), "skew")
        assert first == "1.00"
        assert 0 < float(second) < 1
        assert words.SKEW["jensen_shannon"].title in sweep.table(rows, "α").meanings
        alike = sweep.table_rows([variants[1], replace(variants[1], value=2.0)])
        assert "skew" not in keys(sweep.table(alike, "α"))

    def test_a_choice_at_the_end_of_the_values(self, made: Make) -> None:
        for best, said in ((0, "0.1 is the smallest"), (1, ""), (2, "0.7 is the largest")):
            with case(best):
                variants = [
                    variant(v, SETTINGS, {"local": made("local", v, validation=0.9 if n == best else 0.5, key=v)})
                    for n, v in enumerate((0.1, 0.3, 0.7))
                ]
                text = sweep.summary(variants, RHO)
                assert ("value tried" in text) == bool(said)
                assert said in text


class TestTable:
    def test_by_hand(self, variants: list[Comparison]) -> None:
        """At 0.3 the differences are 2, 3 and 4 points: p = 0.035, tested at 5 % / 2 after the row of 0.7: 3 ± 3.58."""
        shown = sweep.table(sweep.table_rows(variants), "ρ")
        assert keys(shown) == [
            *("method", "value", "after_transfer", "validation"),
            *("minus_local", "chosen"),
        ]
        assert rows(shown) == [
            ["KT-pFL", "0.1", "80.0 ± 0.0", "70.0 ± 0.0", "−1.0 [−4.6, +2.6]", ""],
            ["KT-pFL", "0.3", "84.0 ± 2.0", "95.0 ± 0.0", "+3.0 [−0.6, +6.6]", "chosen"],
            ["KT-pFL", "0.7", "91.0 ± 1.0", "85.0 ± 0.0", "**+10.0** [+10.0, +10.0]", ""],
            ["Local-only", "any", "81.0 ± 1.0", "80.0 ± 0.0", "–", ""],
        ]

    def test_one_seed_has_no_spread(self, made: Make) -> None:
        variants = [
            variant(e, SETTINGS, {name: made(name, 0.5 / e, validation=0.5, key=e) for name in ("kt_pfl", "local")})
            for e in (1, 2)
        ]
        shown = rows(sweep.table(sweep.table_rows(variants), "E"))
        assert shown[0] == ["KT-pFL", "1", "50.0", "50.0", "0.0", "chosen"]
        assert sweep.summary(variants, "E").endswith("With only 1 seed, these choices may be due to chance.")

    def test_without_local_only(self, prose: Prose, variants: list[Comparison]) -> None:
        alone = without(variants, "local")
        assert {row.minus_local for row in sweep.table_rows(alone)} == {None}
        said = prose(sweep.summary(alone, RHO))
        assert "chooses ρ = 0.3 for KT-pFL: 84.0 ± 2.0 %" in said and "local-only" not in said
        assert "minus_local" not in keys(sweep.table(sweep.table_rows(alone), RHO))

    def test_the_summary_reports_the_chosen_value(self, variants: list[Comparison]) -> None:
        said = sweep.summary(variants, RHO)
        assert said.startswith(
            "Validation accuracy chooses ρ = 0.3 for KT-pFL: 84.0 ± 2.0 % after transfer, +3.0 [−0.6, "
        )
        assert said.endswith("to local-only at this value.")

    def test_the_headline_leads(self, variants: list[Comparison]) -> None:
        """A client's macro F1 is half its accuracy here, so that of 84 % at 0.3 is 42 %, and the gain is halved too."""

        def halved(result: MethodResult) -> MethodResult:
            runs = []
            for run in result.runs:
                (record,) = run.history
                own = {"macro_f1": [value / 2 for value in record.accuracy["after_transfer"]]}
                runs.append(replace(run, history=[replace(record, measures=own)]))
            return summarize(runs, result.hyperparameters, result.settings)

        measured = [replace(p, given=[halved(each) for each in p.given]) for p in variants]
        led = [one_.under(headline="macro_f1") for one_ in measured]
        shown = sweep.table(sweep.table_rows(led), "ρ")
        assert keys(shown)[2:5] == ["macro_f1", "after_transfer", "validation"]
        assert rows(shown)[1][2:6] == ["42.0 ± 1.0", "84.0 ± 2.0", "95.0 ± 0.0", "+1.5 [−0.3, +3.3]"]
        assert "42.0 ± 1.0 % after transfer in Macro F1, +1.5 [−0.3, +3.3] percentage" in sweep.summary(led, RHO)
        made = sweep.build("sweep_rho", RHO, led)
        assert float(next(csv.DictReader(made.files["table.csv"].splitlines()))["macro_f1"]) == pytest.approx(0.4)
        lacking = sweep.build("sweep_rho", RHO, [one_.under(headline="macro_f1") for one_ in variants])
        assert "no client has Macro F1 (KT-pFL, Local-only), so accuracy leads" in lacking.html

    def test_the_csv_holds_numbers(self, built: Report) -> None:
        rows = list(csv.DictReader(built.files["table.csv"].splitlines()))
        assert [(row["method"], row[RHO], row["chosen"]) for row in rows] == [
            *(("kt_pfl", "0.1", "0"), ("kt_pfl", "0.3", "1"), ("kt_pfl", "0.7", "0")),
            ("local", "any", "0"),
        ]
        assert float(rows[1]["test"]) == pytest.approx(0.84)
        assert float(rows[1]["minus_local"]) == pytest.approx(0.03)
        half = (float(rows[1]["minus_local_high"]) - float(rows[1]["minus_local_low"])) / 2
        assert half == pytest.approx(6.205 * 0.01 / 3**0.5, rel=1e-4)
        assert rows[3]["minus_local"] == ""


class TestReport:
    def test_words(self, prose: Prose, built: Report) -> None:
        prose(words_of(built))

    def test_the_page_loads_nothing_and_says_what_the_table_says(self, built: Report) -> None:
        assert not re.search(r"<(script src|link|iframe|img)|@import|url\((?!#)", built.html)
        assert "chooses ρ = 0.3" in built.html
        assert "<svg" in built.html
        for run in ("kt_pfl-0.7-2", "local--0"):
            assert run in built.html
            assert run in built.markdown

    @pytest.mark.usefixtures("blank_figures")
    def test_names_are_escaped(self, variants: list[Comparison]) -> None:
        made = sweep.build("<script>_x", RHO, variants)
        assert made.html.count("<script>") == 1  # the page's own

    def test_other_forms(self, built: Report) -> None:
        assert "](figures/accuracy.svg)" in built.markdown
        ((name, text),) = built.latex().items()
        assert name == "tables/table.tex"
        assert text.count(r"\begin{") == text.count(r"\end{") == 1
        assert not set("ρ±−–·") & set(text), "LaTeX has its own signs"
        assert max(map(len, built.console.splitlines())) <= 100
        assert "**" not in built.console
        assert set(built.files) == {"report.html", "report.md", "table.txt", "table.csv"}

    def test_the_swept_hyperparameter_is_not_among_what_is_fixed(self, built: Report) -> None:
        assert "<dt>a</dt>" in built.html
        assert "<dt>rho</dt>" not in built.html

    @pytest.mark.usefixtures("blank_figures")
    def test_the_swept_setting_is_not_among_what_is_common(self, made: Make) -> None:
        variants = [
            variant(e, {**SETTINGS, "training": {"epochs": e}}, {"local": made("local", 0.5, validation=0.5, key=e)})
            for e in (1, 2)
        ]
        html = sweep.build("sweep_local_epochs", "training.epochs", variants).html
        assert "Local epochs E" in html
        assert "<dt>training.epochs</dt>" not in html
        assert "<dt>partition.scheme</dt>" in html

    @pytest.mark.usefixtures("blank_figures")
    @pytest.mark.parametrize(
        ("parameter", "missing"),
        [("partition.scheme", "two labels"), ("clients", "2 clients"), ("private.source", "private digits")],
    )
    def test_what_is_swept_is_no_fact_of_all_points(self, made: Make, parameter: str, missing: str) -> None:
        variants = [variant(e, SETTINGS, {"local": made("local", 0.5, validation=0.5, key=e)}) for e in (1, 2)]
        assert missing in sweep.build("sweep_other", "public.batch", variants).facts
        assert missing not in sweep.build("sweep_other", parameter, variants).facts

    @pytest.mark.usefixtures("blank_figures")
    def test_a_swept_group_is_not_among_what_is_fixed(self, variants: list[Comparison]) -> None:
        named = [replace(one_, value={"rho": one_.value}) for one_ in variants]
        assert "<dt>rho</dt>" not in sweep.build("sweep_rho", "methods.kt_pfl", named).html

    def test_the_same_points_give_the_same_report(self, built: Report, variants: list[Comparison]) -> None:
        again = sweep.build("sweep_rho", RHO, variants)
        assert (again.html, again.files) == (built.html, built.files)


@pytest.mark.usefixtures("blank_figures")
class TestFigure:
    def ticks(self, figure: Figure) -> list[str]:
        return [label.get_text() for label in figure.axes[0].get_xticklabels()]

    def test_the_values_are_the_ticks(self, variants: list[Comparison]) -> None:
        figure = accuracy_by_value(variants, "ρ")
        (axes,) = figure.axes
        assert self.ticks(figure) == ["0.1", "0.3", "0.7"]
        assert axes.get_xscale() == "linear"
        kt_pfl, ring, local = axes.lines
        assert list(kt_pfl.get_ydata()) == pytest.approx([0.80, 0.84, 0.91])
        assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([0.3], [pytest.approx(0.84)])
        assert list(local.get_ydata()) == pytest.approx([0.81] * 3)
        assert len(axes.collections) == 2, "a band for each"

    def test_a_line_goes_from_left_to_right_whatever_the_order_of_the_values(self, variants: list[Comparison]) -> None:
        kt_pfl, ring, _ = accuracy_by_value([variants[2], variants[0], variants[1]], "ρ").axes[0].lines
        assert list(kt_pfl.get_xdata()) == [0.1, 0.3, 0.7]
        assert list(kt_pfl.get_ydata()) == pytest.approx([0.80, 0.84, 0.91])
        assert list(ring.get_xdata()) == [0.3]

    def test_a_wide_range_is_logarithmic(self, made: Make) -> None:
        variants = [variant(b, SETTINGS, {"local": made("local", 0.5, 0.6, key=b)}) for b in (100, 500, 3000)]
        figure = accuracy_by_value(variants, "|D_r|")
        assert figure.axes[0].get_xscale() == "log"
        assert self.ticks(figure) == ["100", "500", "3000"]

    def test_names_stand_side_by_side_unconnected(self, made: Make) -> None:
        variants = [variant(s, SETTINGS, {"local": made("local", 0.5, 0.6, key=s)}) for s in ("mnist", "open_part")]
        figure = accuracy_by_value(variants, "Public data")
        assert self.ticks(figure) == ["mnist", "open_part"]
        assert figure.axes[0].lines[0].get_linewidth() == 0

    def test_bars_of_two_methods_do_not_cover_one_other(self, made: Make) -> None:
        variants = [
            variant(s, SETTINGS, {method: made(method, 0.5, 0.6, key=s) for method in ("kt_pfl", "local")})
            for s in ("mnist", "open_part")
        ]
        first, second = accuracy_by_value(variants, "Public data").axes[0].lines
        assert [b - a for a, b in zip(first.get_xdata(), second.get_xdata(), strict=True)] == pytest.approx([0.08] * 2)

    def test_the_caption_speaks_of_what_is_drawn(self, prose: Prose, built: Report, made: Make) -> None:
        assert "Rings mark" in built.markdown
        assert "A dashed line" in built.markdown
        assert "the band is the standard deviation over 3 seeds" in built.markdown
        named = [variant(s, SETTINGS, {"local": made("local", 0.5, 0.6, key=s)}) for s in ("mnist", "open_part")]
        text = prose(words_of(sweep.build("sweep_public", "public.source", named)))
        assert "Rings mark" not in text and "A dashed line" not in text
        assert "the bar is the standard deviation over 2 seeds" in text

    def test_one_value_and_one_seed(self, made: Make) -> None:
        variants = [variant(3, SETTINGS, {"local": made("local", 0.5, validation=0.5)})]
        assert self.ticks(accuracy_by_value(variants, "E")) == ["3"]


class TestRead:
    @pytest.fixture
    def content(self, variants: list[Comparison]) -> dict[str, Any]:
        cells = [
            Cell("", "mine", "", method, SETTINGS, result.hyperparameters, [0, 1, 2], {}, result.runs, one_.value)
            for one_ in variants
            for method, result in one_.methods.items()
        ]
        found: dict[str, Any] = json.loads(json.dumps(Study(SWEEP, "k", "parent", cells).to_dict()))
        return found

    def test_equal_settings(self, content: dict[str, Any], variants: list[Comparison]) -> None:
        found = read("sweep_rho", content, SWEEP, [SETTINGS] * 3).variants
        assert [(each.value, each.given) for each in found] == [(each.value, each.given) for each in variants]

    def test_another_sweep(self, content: dict[str, Any]) -> None:
        now = {**SWEEP, "experiment": "other"}
        with pytest.raises(InputError, match=r"sweep_rho .* \(experiment='mine', now 'other'\); run it again"):
            read("sweep_rho", content, now, [SETTINGS] * 3)

    def test_another_experiment(self, content: dict[str, Any]) -> None:
        now = {**SETTINGS, "training": {"epochs": 6}}
        with pytest.raises(InputError, match=r"training\.epochs=5, now 6"):
            read("sweep_rho", content, SWEEP, [SETTINGS, SETTINGS, now])

    def test_other_data(self, content: dict[str, Any]) -> None:
        content["cells"][1]["runs"][0]["data"] = "other"
        with pytest.raises(InputError, match="local saw other data than kt_pfl with seed 0"):
            read("sweep_rho", content, SWEEP, [SETTINGS] * 3)


@pytest.mark.usefixtures("blank_figures")
def test_adversaries(made: Make) -> None:
    """The weight on them has an interval; no share is chosen; the table without them has no such column."""
    variants = []
    for share in (0.0, 0.2):
        result = made("kt_pfl", 0.8 - share, 0.9 - share, 0.85 - share, validation=0.8 - share, key=share)
        runs = [
            replace(own, adversaries=[1], trust=trust) for own, trust in zip(result.runs, (0.5, 0.7, 0.6), strict=True)
        ]
        lied = summarize(runs, {}) if share else result
        settings = {**SETTINGS, "adversaries": {"share": share, "kind": "reversed"}}
        variants.append(variant(share, settings, {"kt_pfl": lied}))
    found = sweep.table_rows(variants)
    assert not any(row.chosen for row in found)
    assert "cannot be chosen" in sweep.summary(variants, "share")
    shown = sweep.table(found, "share")
    assert column(shown, "trust") == ["–", "0.60 [0.35, 0.85]"]  # 0.6 ± 4.303 · 0.1 / √3
    assert "trust" not in keys(sweep.table(found[:1], "share"))
    built = sweep.build("sweep", "adversaries.share", variants)
    notes = built.sections[0].blocks[1]
    assert isinstance(notes, Notes)
    assert {"Malicious clients", "Weight on malicious clients"} <= notes.entries.keys()
    first, second = csv.DictReader(built.files["table.csv"].splitlines())
    assert first["trust"] == first["trust_low"] == ""
    assert [float(second[f"trust{end}"]) for end in ("", "_low", "_high")] == pytest.approx(
        [0.6, 0.351586, 0.848414], abs=1e-6
    )


class TestKnowledge:
    """A sweep over how predictions travel."""

    @pytest.fixture(scope="class")
    def lean(self, run: Callable[..., Any]) -> list[Comparison]:
        made = [
            (value, summarize([run("fedmd", 0, [(0.8, accuracy)], knowledge=sent)], {}, {"public": {"batch": 60}}))
            for value, sent, accuracy in (("float32", 40_000, 0.9), ({"encoding": "top_k", "k": 1}, 5_000, 0.8))
        ]
        return [variant(value, SETTINGS, {"fedmd": result}) for value, result in made]

    def test_the_table_has_the_bytes(self, lean: list[Comparison]) -> None:
        shown = sweep.table(sweep.table_rows(lean), "Knowledge")
        assert column(shown, "value") == ["float32", "top_k k=1"]
        assert column(shown, "predictions") == ["0.08", "0.01"]
        assert "Predictions" in shown.meanings

    def test_the_figure_is_of_bytes(self, lean: list[Comparison]) -> None:
        built = sweep.build("sweep_knowledge", "knowledge", lean)
        section = built.sections[1]
        assert section.title == "Accuracy against bytes"
        (picture,) = section.blocks
        assert "Predictions of all clients" in picture.figure.axes[0].get_xlabel()
        (first, second) = csv.DictReader(built.data["table.csv"].splitlines())
        assert (first["predictions_bytes"], second["predictions_bytes"]) == ("80000.0", "10000.0")

    def test_another_sweep_has_no_such_column(self, variants: list[Comparison]) -> None:
        assert "predictions" not in keys(sweep.table(sweep.table_rows(variants), "ρ"))
