import pandas as pd
import pytest

from ktpfl_pipeline.reports import tables
from ktpfl_pipeline.reports.results import summarise


def row(table, title):
    return table.set_index("Method").loc[title].to_dict()


class TestComparison:
    def test_cells(self, study, paper_settings):
        table = tables.comparison_table(study, paper_settings)
        assert row(table, "KT-pFL") == {
            "After distillation (%)": "**90.0** ± 1.0",
            "After local training (%)": "**91.0** ± 1.0",
            "Minus local-only (points)": "+2.0 ± 0.0",
            "Spread over clients (points)": "10.0",
            "Worst decile (%)": "80.0",
            "Traffic (MB)": "2.00",
            "Time": "3.5 s",
            "Paper (%)": "75.6",
        }
        assert row(table, "FedMD")["Minus local-only (points)"] == "−8.0 ± 1.0"
        assert row(table, "FedMD")["Paper (%)"] == "66.1"
        local = row(table, "Local only")
        assert (local["Minus local-only (points)"], local["Paper (%)"], local["Traffic (MB)"]) == ("–", "–", "0")

    def test_the_papers_numbers_only_in_its_setting(self, study, paper_settings):
        table = tables.comparison_table(study, {**paper_settings, "clients": 8})
        assert set(table["Paper (%)"]) == {"–"}
        assert "8 clients instead of 20" in tables.notes(study, {**paper_settings, "clients": 8})["Paper"]
        assert "landmark" in tables.notes(study, paper_settings)["Paper"]
        other = {**paper_settings, "partition": {"scheme": "all_labels"}}
        assert "cite" in tables.notes(study, other)["Paper"]

    def test_one_seed_shows_no_spread_and_no_bold(self, result, paper_settings):
        results = [result("kt_pfl", 0.9), result("local", 0.1)]
        text = tables.to_markdown(tables.comparison_table(results, paper_settings))
        assert "±" not in text
        assert "**" not in text
        assert "+80.0" in text
        assert "Bold" not in tables.notes(results, paper_settings)

    def test_bold_needs_a_lead_beyond_its_spread(self, result, paper_settings):
        def best(kt_pfl, local):
            table = tables.comparison_table([result("kt_pfl", *kt_pfl), result("local", *local)], paper_settings)
            return [cell.startswith("**") for cell in table["After distillation (%)"]]

        assert best((0.9, 0.9), (0.8, 0.8)) == [True, False]
        assert best((0.9, 0.7), (0.89, 0.69)) == [True, False]  # ahead by the same with either seed
        assert best((0.9, 0.8), (0.85, 0.84)) == [False, False]  # +5 and -4
        assert best((0.8, 0.8), (0.8, 0.8)) == [False, False]
        assert best((0.7, 0.7), (0.8, 0.8)) == [False, True]

    def test_a_lead_from_other_seeds_is_not_bold(self, run, paper_settings):
        ahead = summarise([run("kt_pfl", seed, [(mean,)]) for seed, mean in enumerate((0.9, 0.5, 0.5))], {})
        behind = summarise([run("fedmd", seed, [(0.6,)]) for seed in (1, 2)], {})  # better with both common seeds
        assert ahead.final["after_transfer"].mean > behind.final["after_transfer"].mean
        table = tables.comparison_table([ahead, behind], paper_settings)
        assert not any("**" in cell for cell in table["After distillation (%)"])

    def test_without_local_only(self, study, paper_settings):
        table = tables.comparison_table(study[:2], paper_settings)
        assert set(table["Minus local-only (points)"]) == {"–"}
        assert "no local-only run" in tables.notes(study[:2], paper_settings)["Minus local-only"]

    def test_one_method(self, study, paper_settings):
        assert list(tables.comparison_table(study[:1], paper_settings)["After distillation (%)"]) == ["90.0 ± 1.0"]

    def test_a_point_that_was_not_evaluated(self, study, run, paper_settings):
        finished = run("fedmd").to_dict()
        finished["history"][0]["accuracy"].pop("after_local")
        partial = summarise([type(run()).from_dict(finished)], {})
        assert row(tables.comparison_table([partial], paper_settings), "FedMD")["After local training (%)"] == "–"

    def test_how_knowledge_comes_back(self, run):
        soft, weights = summarise([run("fedmd")], {}), summarise([run("fedavg", knowledge=0, parameters=8)], {})
        assert tables.transfer([soft]) == "distillation"
        assert tables.transfer([weights]) == "aggregation"
        assert tables.transfer([soft, weights]) == "transfer"
        assert tables.transfer([summarise([run("local")], {})]) == "transfer"

    def test_unequal_treatment_is_flagged(self, study, run, result, paper_settings):
        assert tables.inequalities(study) == []
        (seeds,) = tables.inequalities([study[0], result("local", 0.8)])
        assert seeds == "seeds differ (KT-pFL: 0, 1, 2; Local only: 0)"
        other = summarise([run("local", after_transfer=[(0.5, 0.7)] * 2, label_counts=[[1], [2]])], {})
        flagged = tables.inequalities([summarise([run()], {}), other])
        assert flagged == [
            "rounds differ (KT-pFL: 1; Local only: 2)",
            "the clients' data or models differ between methods",
        ]
        assert next(iter(tables.notes([study[0], result("local", 0.8)], paper_settings))) == "Not like for like"


class TestOtherTables:
    def test_communication(self, study):
        assert row(tables.communication_table(study), "KT-pFL") == {
            "Knowledge up (MB)": "2.00",
            "Knowledge down (MB)": "0",
            "Parameters up (MB)": "0",
            "Parameters down (MB)": "0",
            "Public data down (MB)": "0",
            "Total (MB)": "2.00",
            "Per client and round (kB)": "1,000",
        }

    def test_phases(self, study):
        assert row(tables.phase_table(study), "FedMD") == {
            "Train": "2.0 s",
            "Distill": "1.0 s",
            "Whole rounds": "3.5 s",
        }

    def test_runs(self, study):
        runs = tables.run_table(study)
        assert list(runs["Seed"]) == ["0", "1", "2"] * 3
        assert runs.iloc[1].to_dict() == {
            "Method": "KT-pFL",
            "Seed": "1",
            "After distillation (%)": "90.0",
            "After local training (%)": "91.0",
            "MLflow run": "01-kt_pfl",
            "Settings key": "key-kt_pfl-1",
        }

    def test_an_untracked_run(self, run):
        assert list(tables.run_table([summarise([run()], {})])["MLflow run"]) == ["–"]


class TestRenderings:
    @pytest.fixture
    def table(self):
        cells = {"Method": ["A|B <i> & 5% of_x", "C"], "After x (%)": ["**96.9** ± 0.3", "1.0"]}
        return pd.DataFrame({**cells, "Minus y (points)": ["−1.0", "–"]}, dtype=object)

    def test_markdown(self, table):
        assert tables.to_markdown(table).splitlines() == [
            "| Method             |    After x (%) | Minus y (points) |",
            "| ------------------ | -------------: | ---------------: |",
            r"| A\|B <i> & 5% of_x | **96.9** ± 0.3 |             −1.0 |",
            "| C                  |            1.0 |                – |",
        ]

    def test_latex(self, table):
        assert tables.to_latex(table).splitlines() == [
            r"\begin{tabular}{lrr}",
            r"\toprule",
            r"Method & \shortstack[r]{After x\\(\%)} & \shortstack[r]{Minus y\\(points)} \\",
            r"\midrule",
            r"A|B <i> \& 5\% of\_x & \textbf{96.9} $\pm$ 0.3 & $-$1.0 \\",
            r"C & 1.0 & -- \\",
            r"\bottomrule",
            r"\end{tabular}",
        ]

    def test_latex_escapes_every_special_character(self):
        escaped = tables.latex_escape("\\ & % $ # _ { } ~ ^")
        assert escaped == (
            r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{}"  # each once
        )

    def test_html(self, table):
        text = tables.to_html(table)
        assert '<th scope="row">A|B &lt;i&gt; &amp; 5% of_x</th>' in text
        assert '<td><strong>96.9</strong><span class="spread"> ± 0.3</span></td>' in text
        assert '<th scope="col">After x <span class="unit">(%)</span></th>' in text

    def test_console(self, table):
        assert tables.to_console(table) == (
            "                                 Minus y\n"
            "Method             After x (%)  (points)\n"
            "─────────────────  ───────────  ────────\n"
            "A|B <i> & 5% of_x   96.9 ± 0.3      -1.0\n"
            "C                          1.0         -\n"
        )

    def test_console_is_at_most_100_wide(self, study, paper_settings):
        table = tables.comparison_table(study, paper_settings)
        assert "Paper" not in tables.to_console(table)
        table.loc[0, "Method"] = "word " * 40
        lines = tables.to_console(table).splitlines()
        assert max(map(len, lines)) == 100
        assert any("…" in line and "90.0 ± 1.0" in line for line in lines)


class TestNumbers:
    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (0, "0"),
            (120_000, "0.12"),
            (1_204_000, "1.20"),
            (12_040_000, "12.0"),
            (99_960_000, "100"),
            (5.64e9, "5,640"),
        ],
    )
    def test_megabytes(self, count, text):
        assert tables.megabytes(count) == text

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (0, "0 s"),
            (8.25, "8.2 s"),
            (9.96, "10 s"),
            (42.4, "42 s"),
            (59.6, "1.0 min"),
            (738, "12.3 min"),
            (8640, "2.4 h"),
        ],
    )
    def test_duration(self, seconds, text):
        assert tables.duration(seconds) == text

    def test_signs(self):
        assert tables.signed(0.012, 0.004) == "+1.2 ± 0.4"
        assert tables.signed(-0.012, None) == "−1.2"
        assert tables.signed(-0.0004, None) == "0.0"
        assert tables.signed(None, None) == "–"

    def test_percent(self):
        assert tables.percent(0.969, 0.003) == "96.9 ± 0.3"
        assert tables.percent(1, None) == "100.0"


def test_columns_of_the_terminal_exist(study, paper_settings):
    assert set(tables.COMPACT) <= set(tables.comparison_table(study, paper_settings).columns)
