import io
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from cases import case
from finished_runs import under
from written import column, keys, notes_of, records, row, rows

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.frames import to_csv
from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.analysis.statistics import Difference
from ktpfl_pipeline.reports import comparison, measures, notes, numbers, tables, theorem
from ktpfl_pipeline.reports.model import Column, Section, Table
from ktpfl_pipeline.reports.numbers import percent, signed
from ktpfl_pipeline.reports.render import latex, markdown, terminal
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.tables import MINUS_LOCAL
from ktpfl_pipeline.reports.words import INTERVALS, aggregates


def table_of(blocks):
    """Return the table of a section."""
    return next(block for block in blocks if isinstance(block, Table))


def on_a_page(table):
    """Return the part of a page that shows the table."""
    page = Report("x", "", "", [], [Section("", [table])], []).html
    return page[page.index("<table>") : page.index("</table>")]


class TestComparison:
    def test_cells(self, study, paper_settings):
        table = tables.comparison_table(under(paper_settings, study))
        assert row(table, "KT-pFL") == {
            "after_transfer": "**90.0** ± 1.0",
            "after_local": "**91.0** ± 1.0",
            "minus_local": "**+2.0** [+2.0, +2.0]",
            "traffic": "2.00",
            "seconds": "3.5 s",
            "paper": "75.60",
        }
        assert row(table, "FedMD")["minus_local"] == "**−8.0** [−10.5, −5.5]"
        assert row(table, "FedMD")["paper"] == "66.10"
        local = row(table, "Local-only")
        assert (local["minus_local"], local["paper"], local["traffic"]) == ("–", "–", "0")

    @pytest.mark.usefixtures("blank_figures")
    def test_the_papers_numbers_only_in_its_setting(self, study, result, paper_settings):
        fedmd = study[1:2]
        table = tables.comparison_table(under({**paper_settings, "clients": 8}, study))
        assert "paper" not in keys(table)
        for shown, changed, why in (
            (fedmd, {"clients": 8}, "clients 8 instead of 20"),
            (
                [result("ds_fl", 0.8)],
                {"partition": {"scheme": "all_labels"}},
                "has no number",
            ),  # the paper has no DS-FL
        ):
            built = comparison.build("x", under({**paper_settings, **changed}, shown))
            (appendix,) = (section for section in built.sections if section.title.startswith("Appendix"))
            assert why in appendix.blocks[0].entries["Paper"]
        assert "rough guide" in comparison.build("x", under(paper_settings, fedmd)).markdown
        own = comparison.build("x", under({**paper_settings, "private": {"source": "npz:mine.npz"}}, fedmd))
        assert not any(section.title.startswith("Appendix") for section in own.sections), "not the paper's data"

    def test_one_seed_shows_no_spread_and_no_bold(self, result, paper_settings):
        results = [result("kt_pfl", 0.9), result("local", 0.1)]
        text = markdown.table(tables.comparison_table(under(paper_settings, results)))
        assert "±" not in text
        assert "**" not in text
        assert "+80.0" in text
        assert "Bold" not in notes_of(under(paper_settings, results))

    def test_bold_needs_an_interval_without_zero(self, result, paper_settings):
        def best(kt_pfl, local):
            table = tables.comparison_table(under(paper_settings, [result("kt_pfl", *kt_pfl), result("local", *local)]))
            return [row(table, title)["after_transfer"].startswith("**") for title in ("KT-pFL", "Local-only")]

        assert best((0.9, 0.9), (0.8, 0.8)) == [False, False]  # two seeds have no interval
        assert best((0.9, 0.7, 0.8), (0.89, 0.69, 0.79)) == [True, False]  # ahead by the same with each seed
        assert best((0.9, 0.9, 0.9), (0.79, 0.8, 0.81)) == [True, False]  # +10 ± 2.5
        assert best((0.9, 0.9, 0.9), (0.89, 0.87, 0.85)) == [False, False]  # +3 beyond its spread of 2, within ± 5
        assert best((0.8, 0.8, 0.8), (0.8, 0.8, 0.8)) == [False, False]
        assert best((0.7, 0.7, 0.7), (0.8, 0.8, 0.8)) == [False, True]

    def test_a_lead_from_other_seeds_is_not_bold(self, run, paper_settings):
        ahead = summarize([run("kt_pfl", seed, [(mean,)]) for seed, mean in enumerate((0.9, 0.5, 0.5))], {})
        behind = summarize([run("fedmd", seed, [(0.6,)]) for seed in (1, 2)], {})  # better with both common seeds
        assert ahead.final["after_transfer"].mean > behind.final["after_transfer"].mean
        table = tables.comparison_table(under(paper_settings, [ahead, behind]))
        assert not any("**" in cell for cell in column(table, "after_transfer"))

    def test_without_local_only(self, study, paper_settings):
        table = tables.comparison_table(under(paper_settings, study[:2]))
        assert set(column(table, "minus_local")) == {"–"}
        assert "no local-only training" in notes_of(under(paper_settings, study[:2]))[MINUS_LOCAL.title]

    def test_one_method(self, study, paper_settings):
        table = tables.comparison_table(under(paper_settings, study[:1]))
        assert column(table, "after_transfer") == ["90.0 ± 1.0"]

    def test_a_point_that_was_not_evaluated(self, study, run, paper_settings):
        finished = run("fedmd").to_dict()
        finished["history"][0]["accuracy"].pop("after_local")
        partial = summarize([type(run()).from_dict(finished)], {})
        assert row(tables.comparison_table(under(paper_settings, [partial])), "FedMD")["after_local"] == "–"

    def test_the_best_is_first_and_two_rows_are_set_off(self, result, paper_settings):
        results = [result("fedmd", 0.7), result("local", 0.8), result("kt_pfl", 0.9)]
        table = tables.comparison_table(under(paper_settings, results))
        assert column(table, "method") == ["KT-pFL", "Local-only", "FedMD"]
        assert table.tinted == ["kt_pfl", "local"]

    def test_how_knowledge_comes_back(self, run):
        assert not aggregates(summarize([run("fedmd")], {}))
        assert aggregates(summarize([run("fedavg", knowledge=0, parameters=8)], {}))
        assert not aggregates(summarize([run("local")], {}))

    def test_a_few_numbers_beside_models_are_no_predictions(self, run):
        """FedFomo's clients send what they think of each model."""
        assert aggregates(summarize([run("fedfomo", knowledge=24, parameters=1000)], {}))

    def test_methods_whose_two_points_are_one_are_named(self, study, run, paper_settings):
        once = summarize([run("fedamp")], {})
        twice = summarize([run("fedavg", after_transfer=[(0.5, 0.7)], after_local=[(0.6, 0.7)])], {})
        (note,) = [
            text for column, text in notes_of(under(paper_settings, [once, twice])).items() if "local tr" in column
        ]
        assert "Both are equal for methods in which" in note and note.endswith("back only before training: FedAMP.")
        assert "Both are equal" not in str(notes_of(under(paper_settings, study[:1])))
        alone = [summarize([run(method, knowledge=0)], {}) for method in ("local", "local_matched", "local_5x")]
        assert "Both are equal" not in str(notes_of(under(paper_settings, alone))), "nothing comes back at all"

    def test_unequal_treatment_is_flagged(self, prose, study, run, result, paper_settings):
        assert notes.inequalities(Comparison(study)) == []
        (seeds,) = notes.inequalities(Comparison([study[0], result("local", 0.8)]))
        assert seeds.startswith("seeds differ (KT-pFL: 0, 1, 2; Local-only: 0)")
        other = summarize([run("local", after_transfer=[(0.5, 0.7)] * 2, label_counts=[[1], [2]])], {})
        flagged = notes.inequalities(Comparison([summarize([run()], {}), other]))
        prose("\n".join(flagged), "rounds and data")
        rounds, data = flagged
        assert rounds.startswith("rounds differ (KT-pFL: 1; Local-only: 2)") and "data or models differ" in data
        records = [replace(record, late=[1], cohort=[0]) for record in other.runs[0].history]
        waits = summarize([replace(run("fedavg", label_counts=[[1], [2]]), history=records)], {})
        (late,) = notes.inequalities(Comparison([waits, other]))
        assert "skipped rounds with FedAvg, but trained" in prose(late, "late")
        found = notes.alerts(under(paper_settings, [study[0], result("local", 0.8)]))
        assert [kind for kind, text in found.items() if text] == ["Not like for like"]


class TestDifferences:
    def test_the_subject_minus_each_other(self, study):
        """To FedMD 11, 10 and 9 points: 10 ± 4.303 · 1 / √3; after local training 3, 4 and 5."""
        assert rows(table_of(measures.minus_baselines(Comparison(study)))) == [
            ["FedMD", "**+10.0** [+7.5, +12.5]", "1.0", "**+4.0** [+1.5, +6.5]", "3"],
        ]
        assert table_of(measures.minus_baselines(Comparison(study))).headings[0] == "KT-pFL minus"

    def test_an_interval_with_zero_is_not_bold(self, result):
        table = table_of(
            measures.minus_baselines(Comparison([result("kt_pfl", 0.9, 0.9, 0.9), result("fedmd", 0.89, 0.87, 0.85)]))
        )
        assert rows(table)[0][1] == "+3.0 [−2.0, +8.0]"

    def test_one_seed_and_no_seed_in_common(self, result, run):
        other = summarize([run("ds_fl", 7)], {})
        found = rows(
            table_of(measures.minus_baselines(Comparison([result("kt_pfl", 0.9), result("fedmd", 0.8), other])))
        )
        assert found == [["FedMD", "+10.0", "–", "+10.0", "1"], ["DS-FL", "–", "–", "–", "0"]]

    def test_together_they_are_corrected(self, result):
        """To FedMD 10 ± 4.303 · 1 / √3, to DS-FL 1 ± 6.205 · 1 / √3: of two the second is tested at 95 %."""
        others = [result("fedmd", 0.78, 0.80, 0.82), result("ds_fl", 0.87, 0.89, 0.91)]
        found = rows(table_of(measures.minus_baselines(Comparison([result("kt_pfl", 0.89, 0.90, 0.91), *others]))))
        assert [row[1] for row in found] == ["**+10.0** [+6.4, +13.6]", "+1.0 [−1.5, +3.5]"]
        assert "a level of 95 % or more" in INTERVALS

    def test_alone(self, study):
        assert measures.minus_baselines(Comparison(study[:1])) == []
        assert measures.minus_baselines(Comparison([study[0], study[2]])) == [], "the main table has local-only"


class TestTheorem:
    def test_by_hand(self, whole):
        """Own losses on the fitted half are 0.25 and 1 with the first seed, 0.25 and 2 with the second."""
        table = theorem.table(whole)
        assert list(row(table, "Fitted").values()) == [
            *("0.688 ± 0.265", "0.875 ± 0.000", "75.0 ± 0.0"),  # 0.5 and 0.875
            *("4 of 4", "2 of 4"),
        ]
        # Learned is 1: above 0.25, level with 1 in the first seed, below both 2 and 1.5 in the second.
        assert list(row(table, "Learned").values())[-2:] == ["2 of 4", "2 of 4"]
        assert list(row(table, "Own").values())[-2:] == ["–", "–"]
        assert column(table, "mixture") == ["Fitted", "Own", "Average", "Learned"]

    def test_a_violation_beyond_the_certificate_is_counted(self, whole):
        check = whole.runs[0].theorem
        worse = replace(check, fit={**check.fit, "fitted": [0.2501, 0.75]})
        result = replace(whole, runs=[replace(whole.runs[0], theorem=worse)])
        assert column(theorem.table(result), "fit_no_worse")[0] == "1 of 2"
        covered = replace(result, runs=[replace(whole.runs[0], theorem=replace(worse, certificate=[0.001, 0.0]))])
        assert column(theorem.table(covered), "fit_no_worse")[0] == "2 of 2"

    def test_adversaries_do_not_count(self, whole):
        liars = replace(whole, runs=[replace(run, adversaries=[1]) for run in whole.runs])
        found, first = theorem.table(liars), whole.runs[0].theorem
        assert row(found, "Own")["fit_loss"] == f"{first.fit['own'][0]:.3f} ± 0.000"
        assert row(found, "Fitted")["fit_no_worse"] == "2 of 2"

    def test_without_learned_coefficients_or_check(self, whole, study):
        check = whole.runs[0].theorem
        fewer = [
            {name: values for name, values in each.items() if name != "learned"}
            for each in vars(check).values()
            if isinstance(each, dict)
        ]
        run = replace(whole.runs[0], theorem=replace(check, fit=fewer[0], test=fewer[1], accuracy=fewer[2]))
        table = theorem.table(replace(whole, runs=[run]))
        assert column(table, "mixture") == ["Fitted", "Own", "Average"]
        assert theorem.blocks(study[0]) == []


class TestDataFiles:
    def read(self, results):
        return {
            f"{name}.csv": pd.read_csv(io.StringIO(to_csv(frame))) for name, frame in Comparison(results).frames.items()
        }

    def test_runs(self, study):
        runs = self.read(study)["runs.csv"]
        assert len(runs) == 3 * 3 * 2  # methods, seeds, points
        row = runs[(runs.run_id == "01-fedmd") & (runs.point == "after_transfer")].iloc[0]
        assert (row.method, row.seed, row.key) == ("fedmd", 1, "key-fedmd-1")
        assert (row.accuracy, row.client_std, row.worst_decile) == pytest.approx((0.8, 0.1, 0.7))
        assert (row.knowledge_up_bytes, row.seconds) == (2e6, 3.5)
        assert not {"samples", "macro_f1"} & set(runs.columns)

    def test_every_row_names_a_run(self, study, whole):
        for results in (study, [whole]):
            known = {run.run_id for result in results for run in result.runs}
            for table in self.read(results).values():
                ids = table.run_ids.str.split(" ").explode() if "run_ids" in table else table.run_id
                assert set(ids) <= known
                assert len(ids)

    def test_architectures(self, study):
        """One client of each, 10 points around the mean in every method: the differences are those of the means."""
        table = self.read(study)["architectures.csv"].set_index(["architecture", "method"])
        assert table["mean"].to_dict() == pytest.approx(
            {(name, method): gain for name in ("lenet", "mlp") for method, gain in (("kt_pfl", 0.02), ("fedmd", -0.08))}
        )
        assert set(table.minus_run_ids) == {"00-local 01-local 02-local"}

    def test_rounds_and_clients(self, whole):
        found = self.read([whole])
        assert sorted(found) == ["clients.csv", "rounds.csv", "runs.csv", "theorem.csv"]
        assert found["rounds.csv"].after_transfer.tolist() == pytest.approx([0.6, 0.7, 0.8] * 2)
        assert found["clients.csv"].after_transfer.tolist() == pytest.approx([0.6, 0.8] * 2)
        assert found["clients.csv"].architecture.tolist() == ["lenet", "mlp"] * 2

    def test_rounds_have_what_methods_report_and_what_happened_to_clients(self, run):
        plain = run(after_transfer=[(0.5, 0.7)] * 2)
        first = replace(plain.history[0], metrics={"alpha": 0.25}, late=[1], stale=[0, 1])
        found = self.read([summarize([replace(plain, history=[first, plain.history[1]])], {})])["rounds.csv"]
        assert found["metrics/alpha"].tolist() == pytest.approx([0.25, math.nan], nan_ok=True)
        assert found[["diverged", "absent", "late", "stale"]].to_numpy().tolist() == [[0, 0, 1, 2], [0, 0, 0, 0]]

    def test_malicious_clients_are_marked(self, whole):
        """Means do not count them, so they must be told from the others."""
        assert "malicious" not in self.read([whole])["clients.csv"]
        liars = replace(whole, runs=[replace(run, adversaries=[1]) for run in whole.runs])
        assert self.read([liars])["clients.csv"].malicious.tolist() == [0, 1] * 2

    def test_clients_are_called_by_their_ids(self, whole):
        """As in the table of the partition: newcomers that were held out leave gaps."""
        found = self.read([replace(whole, runs=[replace(run, ids=[1, 4]) for run in whole.runs])])
        for name in ("clients.csv", "theorem.csv"):
            assert set(found[name].client) == {1, 4}, name

    def test_theorem(self, whole):
        table = self.read([whole])["theorem.csv"]
        assert len(table) == 2 * 2 * 4  # seeds, clients, mixtures
        row = table[(table.run_id == "01-kt_pfl") & (table.client == 1) & (table.mixture == "fitted")].iloc[0]
        assert (row.fit_loss, row.test_loss, row.test_accuracy, row.certificate) == (1.5, 1.25, 0.5, 5e-9)

    def test_differences(self, study):
        table = self.read(study)["differences.csv"]
        row = table[(table.minus == "fedmd") & (table.point == "after_transfer")].iloc[0]
        assert (row["mean"], row["std"], row.low) == pytest.approx((0.1, 0.01, 0.1 - 4.302653 * 0.01 / 3**0.5))
        assert row.minus_run_ids == "00-fedmd 01-fedmd 02-fedmd"


def run_table(results):
    return tables.runs([("x", result) for result in results]).blocks[0]


class TestOtherTables:
    @pytest.mark.usefixtures("blank_figures")
    def test_the_caption_of_the_traffic_names_a_line_only_where_one_is_drawn(self, run):
        """With equal traffic a single method has the highest accuracy, and there is no second one to join it to."""

        def caption(*sent):
            made = zip(("kt_pfl", "fedmd"), sent, (0.7, 0.6), strict=True)
            results = [summarize([run(name, 0, [(a, a)], knowledge=each)], {}) for name, each, a in made]
            return measures.communication(Comparison(results))[0].caption

        assert "line" not in caption(1_000_000, 1_000_000)
        assert "The line joins the methods" in caption(2_000_000, 1_000_000)

    def test_communication(self, study):
        assert row(table_of(measures.communication(Comparison(study))), "KT-pFL") == {
            "knowledge_up_bytes": "2.00",
            "knowledge_down_bytes": "0",
            "parameters_up_bytes": "0",
            "parameters_down_bytes": "0",
            "public_down_bytes": "0",
            "traffic": "2.00",
            "per_turn": "1,000",
        }

    def test_phases(self, study):
        assert row(table_of(measures.phases(Comparison(study))), "FedMD") == {
            "seconds_train": "2.0 s",
            "seconds_distill": "1.0 s",
            "seconds": "3.5 s",
        }

    def test_a_phase_that_a_method_does_not_have(self, study):
        fine_tuned = replace(study[1], seconds={"train": 2.0, "fine_tune": 0.0, "round": 2.5})
        table = table_of(measures.phases(Comparison([study[0], fine_tuned])))
        assert (column(table, "seconds_distill"), column(table, "seconds_fine_tune")) == (["1.0 s", "–"], ["–", "0 s"])

    def test_runs(self, study):
        runs = run_table(study)
        assert column(runs, "seed") == ["0", "1", "2"] * 3
        assert records(runs)[1] == {
            "method": "KT-pFL",
            "seed": "1",
            "after_transfer": "90.0",
            "after_local": "91.0",
            "run_id": "01-kt_pfl",
            "key": "key-kt_pfl-1",
        }

    def test_an_untracked_run(self, run):
        assert column(run_table([summarize([run()], {})]), "run_id") == ["–"]


class TestRenderings:
    @pytest.fixture
    def table(self):
        shown = [Column("name", "Method"), Column("x", "After x", "%"), Column("y", "Minus y", "points")]
        first = {"name": "A|B <i> & 5% of_x", "x": percent(0.969, 0.003, bold=True), "y": signed(-0.01)}
        return Table("x", shown, [first, {"name": "C", "x": "1.0"}])

    def test_markdown(self, table):
        assert markdown.table(table).splitlines() == [
            "| Method              |    After x (%) | Minus y (points) |",
            "| ------------------- | -------------: | ---------------: |",
            r"| A\|B \<i> & 5% of_x | **96.9** ± 0.3 |             −1.0 |",
            "| C                   |            1.0 |                – |",
        ]

    def test_latex(self, table):
        assert latex.table(table).splitlines() == [
            r"\begin{tabular}{lrr}",
            r"\toprule",
            r"Method & \shortstack[r]{After x\\(\%)} & \shortstack[r]{Minus y\\(points)} \\",
            r"\midrule",
            r"A\textbar{}B \textless{}i\textgreater{} \& 5\% of\_x & \textbf{96.9} $\pm$ 0.3 & $-$1.0 \\",
            r"C & 1.0 & -- \\",
            r"\bottomrule",
            r"\end{tabular}",
        ]

    def test_latex_escapes_every_special_character(self):
        escaped = latex.escape("\\ & % $ # _ { } ~ ^")
        assert escaped == (
            r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{}"  # each once
        )

    def test_latex_writes_powers_and_greek(self):
        assert latex.escape("10⁶ bytes, ρ, α") == r"10$^{6}$ bytes, $\rho$, $\alpha$"

    def test_latex_writes_every_sign_of_a_caption(self):
        """Without a definition, LaTeX stops at an ε; the others need a font that has them."""
        assert latex.escape("8 × 8, ε at δ, ±, †, ‡, ·, −, –").isascii()

    def test_html(self, table):
        text = on_a_page(table)
        assert '<th scope="row">A|B &lt;i&gt; &amp; 5% of_x</th>' in text
        assert '<td data-by="0.969"><strong>96.9</strong><span class="spread"> ± 0.3</span></td>' in text
        assert ">−1.0</td>" in text
        assert '<th scope="col">After x <span class="unit">(%)</span></th>' in text

    def test_html_aligns_words_at_the_left_and_numbers_at_the_right(self):
        rows = [{"Method": "a", "Chosen": "rho=1", "Seeds": "3", "Agrees": "yes"}, {"Method": "b", "Seeds": "−1"}]
        shown = [Column(name, name) for name in ("Method", "Chosen", "Seeds", "Agrees", "Meaning")]
        text = on_a_page(Table("x", shown, [{**row, "Meaning": "many words " * 8} for row in rows]))
        heads = re.findall(r'<th scope="col"([^>]*)>(\w+)', text)
        assert {name: "text" in given for given, name in heads} == {
            "Method": True,
            "Chosen": True,
            "Seeds": False,
            "Agrees": True,
            "Meaning": True,
        }
        assert text.count('<td class="prose"') == 2
        assert '<td data-by="3">3</td>' in text

    def test_the_navigation_is_whole_at_any_width(self, table):
        style = Report("x", "", "", [], [Section("", [table])], []).html.partition("</style>")[0]
        assert re.search(r"nav ul \{[^}]*flex-wrap: wrap", style)
        assert "@media (min-width: 1180px)" in style  # from there on it is a column at the left

    def test_html_sorts_times_by_seconds_and_dashes_below_every_number(self, study, paper_settings):
        local = replace(study[-1], seconds={"train": 2.0, "round": 200.0})
        shown = [*study[:-1], local]
        page = on_a_page(table_of(measures.phases(Comparison(shown))))
        assert re.findall('data-by="([^"]+)">([^<]+)</td>', page) == [
            *[("2.0", "2.0 s"), ("1.0", "1.0 s"), ("3.5", "3.5 s")] * 2,
            *[("2.0", "2.0 s"), ("-Infinity", "–"), ("200.0", "3.3 min")],
        ]
        assert '<td data-by="3.5">3.5 s</td>' in on_a_page(tables.comparison_table(under(paper_settings, study)))

    def test_html_escapes_titles_and_names_of_columns(self):
        text = on_a_page(
            Table(
                "x",
                [Column("a", "<a>"), Column("b", "<b>", "<c>")],
                [{"a": "<d>", "b": "<e>"}, {"a": "<d>", "b": "<f>"}],
            )
        )
        assert not {"<a>", "<b>", "<c>", "<d>", "<e>", "<f>"} & set(re.findall("<.>", text))
        assert text.count("&lt;d&gt;") == 2

    def test_terminal(self, table):
        assert terminal.table(table) == (
            "                                 Minus y\n"
            "Method             After x (%)  (points)\n"
            "────────────────────────────────────────\n"
            "A|B <i> & 5% of_x   96.9 ± 0.3      −1.0\n"
            "C                          1.0         –\n"
        )

    def test_the_terminals_table_fits_it(self, study, paper_settings):
        """Columns are left out before names are shortened, and named below."""
        long = [replace(study[0], title="word " * 12), *study[1:]]
        shown = tables.comparison_table(under(paper_settings, long)).without("paper")
        for width in (60, 80, 100, 120):
            with case(width):
                text = terminal.table(shown, width)
                assert max(map(len, text.splitlines())) <= width
                assert "90.0 ± 1.0" in text
                assert ("Further columns" in text) is ("Time" not in text.partition("Further")[0])

    def test_names_are_never_squeezed_out(self):
        """Columns go before the first is cut below eight characters."""
        shown = [Column("method", "Method"), *(Column(f"{n}", f"column {n}") for n in range(3))]
        wide = Table("wide", shown, [{"method": "A method", **{f"{n}": "1" * 19 for n in range(3)}}])
        text = terminal.table(wide, 60)
        assert max(map(len, text.splitlines())) <= 60
        assert "A method" in text
        assert "Further columns of the report: column 2." in text

    @pytest.mark.usefixtures("blank_figures")
    def test_the_table_that_is_kept_is_the_same_whatever_the_terminal(self, study, paper_settings, monkeypatch):
        made = {}
        for width in (60, 120):
            monkeypatch.setenv("COLUMNS", str(width))
            report = comparison.build("compare_x", under(paper_settings, study))
            made[width] = report.files["table.txt"]
            assert report.console != made[width]
        assert made[60] == made[120]

    @pytest.mark.usefixtures("blank_figures")
    def test_words_stay_whole(self, study, paper_settings):
        made = comparison.build("compare_x", under(paper_settings, study))
        text = terminal.text(made, 60)
        assert max(map(len, text.splitlines())) <= 60
        assert "KT-\n" not in text


class TestNumbers:
    def test_megabytes(self):
        for count, text in (
            (0, "0"),
            (1_230, "0.00123"),
            (120_000, "0.12"),
            (996_000, "1.00"),
            (1_204_000, "1.20"),
            (12_040_000, "12.0"),
            (99_960_000, "100"),
            (5.64e9, "5,640"),
        ):
            with case(count):
                assert str(numbers.megabytes(count)) == text

    def test_duration(self):
        for seconds, text in (
            (0, "0 s"),
            (8.25, "8.2 s"),
            (9.96, "10 s"),
            (42.4, "42 s"),
            (59.6, "1.0 min"),
            (738, "12.3 min"),
            (8640, "2.4 h"),
        ):
            with case(seconds):
                assert numbers.duration(seconds) == text

    def test_interval(self):
        written = [
            markdown.entry(numbers.interval(difference))
            for difference in (
                Difference(0.012, 0.01, 0.004, 0.02, 3),
                Difference(0.012, 0.01, -0.004, 0.028, 3),
                Difference(0.012, None, None, None, 1),
                None,
            )
        ]
        assert written == ["**+1.2** [+0.4, +2.0]", "+1.2 [−0.4, +2.8]", "+1.2", "–"]

    def test_signs(self):
        assert [str(signed(value)) for value in (0.012, -0.012, -0.0004)] == ["+1.2", "−1.2", "0.0"]

    def test_percent(self):
        assert str(percent(0.969, 0.003)) == "96.9 ± 0.3"
        assert str(percent(1)) == "100.0"


@pytest.mark.usefixtures("blank_figures")
def test_the_terminal_does_not_show_the_papers_numbers(study, paper_settings):
    built = comparison.build("x", under(paper_settings, study))
    assert "paper" in keys(built.tables["table"])
    assert "paper" not in keys(built.brief[0])


def test_the_title_of_a_column_is_written_by_renderers_only(study, paper_settings):
    """Another title changes headings and nothing else: rows, notes and files have keys."""
    table = tables.comparison_table(under(paper_settings, study))
    renamed = replace(table, columns=[column.but(title=f"x{column.title}") for column in table.columns])
    assert rows(renamed) == rows(table)
    assert renamed.without("traffic").filled().headings == [f"x{each}" for each in table.without("traffic").headings]
    assert {f"x{term}" for term in table.meanings} == set(renamed.meanings)
