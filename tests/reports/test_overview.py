import json
import re
from functools import reduce
from operator import getitem

import blank
import pytest
from cases import case
from finished_runs import make_settings, under
from report_prose import words_of
from written import column, keys, row, rows

from ktpfl_pipeline.analysis.statistics import Difference
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.reports import figures, overview
from ktpfl_pipeline.reports.style import INK


@pytest.fixture(scope="module")
def content(study):
    """Make what a comparison of `study`, or of other results, left with these changes to the paper's settings."""

    def make(results=study, **changes):
        settings = make_settings()
        for name, value in changes.items():
            settings[name] = {**settings[name], **value} if isinstance(value, dict) else value
        return under(settings, results).to_dict("compare_x")

    return make


@pytest.fixture(scope="module")
def columns(content):
    """Return the titled columns of some contents."""
    return lambda **contents: overview.titled([overview.read(*entry) for entry in contents.items()])


@pytest.fixture(scope="module")
def two(content):
    """Fashion-MNIST at the paper's settings, and digits in another setting with one seed."""
    return {
        "compare_b/two_labels": content(),
        "compare_a": content(private={"source": "digits"}, partition={"scheme": "all_labels"}, rounds=7),
    }


@pytest.fixture(scope="module")
def built(two):
    with blank.blank_figures():
        return overview.build(two)


class TestDifference:
    def test_the_interval_of_three_seeds(self, columns, content):
        """FedMD 78, 80, 82 and local-only 87, 88, 89: -8 ± 4.303 · 1 / √3, as the second of two that are tested."""
        (only,) = columns(a=content()).values()
        difference = overview.differences(only)["fedmd", "local"]
        half = 4.303 * 0.01 / 3**0.5
        assert (difference.mean, difference.low) == pytest.approx((-0.08, -0.08 - half), rel=1e-4)
        assert [found.sign for found in overview.differences(only).values()] == [1, -1]

    def test_they_are_corrected_as_in_the_comparisons_own_report(self, columns, content, result):
        """Of the two to local-only the first is tested at 5 % / 2, and fails; so both have that level. One rival."""
        pair = [result(name, 0.80, 0.83, 0.86) for name in ("kt_pfl", "sim_pfl")]
        (only,) = columns(a=content([*pair, result("local", 0.8, 0.8, 0.8)])).values()
        levels = [(found.family, found.confidence) for found in overview.differences(only).values()]
        assert levels == [(2, pytest.approx(1 - 0.05 / 2))] * 2 + [(1, 0.95)]
        assert list(overview.differences(only)) == [("kt_pfl", "local"), ("sim_pfl", "local"), ("kt_pfl", "sim_pfl")]

    def test_one_seed_has_no_interval(self, columns, content, result):
        (only,) = columns(a=content([result("kt_pfl", 0.9), result("local", 0.8)])).values()
        assert overview.differences(only) == {("kt_pfl", "local"): Difference(pytest.approx(0.1), None, None, None, 1)}
        assert overview.differences(only)["kt_pfl", "local"].sign == 0
        assert only.clear_best() is None

    def test_only_common_seeds_count(self, columns, content, result):
        (only,) = columns(a=content([result("kt_pfl", 0.9, 0.8), result("local", 0.8)])).values()
        assert overview.differences(only) == {("kt_pfl", "local"): Difference(pytest.approx(0.1), None, None, None, 1)}


class TestTitles:
    def test_the_papers_order(self, columns, content):
        found = columns(
            a=content(private={"source": "digits"}),
            b=content(private={"source": "cifar10"}),
            c=content(partition={"scheme": "dirichlet"}),
            d=content(),
            e=content(partition={"scheme": "all_labels"}),
            f=content(private={"source": "emnist:letters"}),
        )
        assert list(found) == [
            "EMNIST, two labels",
            "Fashion-MNIST, all labels",
            "Fashion-MNIST, two labels",
            "Fashion-MNIST, dirichlet",
            "CIFAR-10, two labels",
            "digits, two labels",
        ]

    def test_public_data_then_the_folder_tell_alike_columns_apart(self, columns, content):
        assert list(columns(a=content(), b=content(public={"source": "open_part"}))) == [
            "Fashion-MNIST, two labels, public mnist",
            "Fashion-MNIST, two labels, public open part",
        ]
        assert list(columns(a=content(), b=content(rounds=5))) == [
            "Fashion-MNIST, two labels, a",
            "Fashion-MNIST, two labels, b",
        ]


class TestTables:
    def test_accuracy_with_the_papers_beside_it(self, columns, two):
        table = overview.accuracy_table(columns(**two))
        assert keys(table) == [
            *("method", "Fashion-MNIST, two labels", "Fashion-MNIST, two labels: paper", "digits, all labels"),
        ]
        assert rows(table) == [
            ["KT-pFL", "**90.0** ± 1.0", "75.60", "**90.0** ± 1.0"],
            ["FedMD", "80.0 ± 2.0", "66.10", "80.0 ± 2.0"],
            ["Local-only", "88.0 ± 1.0", "–", "88.0 ± 1.0"],
        ]

    def test_who_has_more_than_others_is_marked_and_told(self, columns, content, result):
        found = columns(a=content([result(name, 0.9, 0.9) for name in ("kt_pfl", "pfeddf", "kt_pfl_likelihood")]))
        assert column(overview.accuracy_table(found), "method") == ["KT-pFL", "KT-pFL (likelihood) †", "pFedDF ‡"]
        notes = overview.notes(found)
        assert notes["†"].endswith("do not use: KT-pFL (likelihood).")
        assert notes["‡"].endswith("after equal extra epochs: pFedDF.")

    def test_a_lead_within_its_interval_is_not_bold(self, columns, content, result):
        """Differences 1 and 3: their mean exceeds their standard deviation, but not half of a t interval."""
        table = overview.accuracy_table(columns(a=content([result("kt_pfl", 0.9, 0.9), result("local", 0.89, 0.87)])))
        assert "**" not in str(rows(table))

    def test_a_method_that_was_not_run_has_a_dash(self, columns, content, result):
        pair = content([result("sim_pfl", 0.8, 0.8), result("local", 0.7, 0.7)], private={"source": "digits"})
        found = columns(a=content(), b=pair)
        table = overview.accuracy_table(found)
        assert row(table, "Sim-pFL")["Fashion-MNIST, two labels"] == "–"
        assert row(table, "KT-pFL")["digits, two labels"] == "–"
        assert column(overview.difference_table(found), "pair") == [
            "KT-pFL",
            "Sim-pFL",
            "FedMD",
        ]

    def test_differences(self, columns, content, study, result):
        table = overview.difference_table(columns(a=content([*study, result("sim_pfl", 0.88, 0.89, 0.90)])))
        assert rows(table) == [
            ["KT-pFL", "**+2.0** [+2.0, +2.0]"],
            ["Sim-pFL", "**+1.0** [+1.0, +1.0]"],
            ["FedMD", "**−8.0** [−10.5, −5.5]"],
            ["KT-pFL minus Sim-pFL", "**+1.0** [+1.0, +1.0]"],
        ]

    def test_another_setting_puts_the_papers_numbers_into_a_table_of_their_own(self, columns, content):
        found = columns(a=content(clients=8))
        assert keys(overview.accuracy_table(found)) == ["method", "Fashion-MNIST, two labels"]
        table = overview.paper_table(found)
        assert [row for row in rows(table) if row[0] in ("FedMD", "KT-pFL")] == [
            ["KT-pFL", "75.60"],
            ["FedMD", "66.10"],
        ]
        assert overview.notes(found)["Not the paper's setting"] == "Fashion-MNIST, two labels: clients 8 instead of 20."

    def test_what_all_comparisons_have_otherwise_is_said_once(self, columns, content):
        found = columns(a=content(clients=8), b=content(clients=8, private={"source": "digits"}))
        every, digits = overview.notes(found)["Not the paper's setting"].split("; ")
        assert every == "all comparisons: clients 8 instead of 20"
        assert digits.startswith("digits, two labels: private data digits instead of ")

    def test_no_table_of_the_papers_without_numbers(self, columns, content, two):
        assert not overview.paper_table(columns(**two)).rows
        assert not overview.paper_table(columns(a=content(private={"source": "digits"}))).rows

    def test_settings(self, columns, two, content):
        found = columns(**two)
        assert rows(overview.settings_table(found)) == [
            ["Fashion-MNIST, two labels", "1", "fashion_mnist", "two_labels"],
            ["digits, all labels", "7", "digits", "all_labels"],
        ]
        common = overview.common_settings(found)
        assert common["training.epochs"] == "20"
        assert common["private.classes"] == "null"
        assert "rounds" not in common
        assert not overview.settings_table(columns(a=content())).rows

    def test_every_number_names_its_runs(self, built):
        found = rows(built.tables["runs"])
        assert len(found) == 2 * 3 * 3
        assert found[0] == ["Fashion-MNIST, two labels", "KT-pFL", "0", "89.0", "00-kt_pfl"]
        assert found[-1] == ["digits, all labels", "Local-only", "2", "89.0", "02-local"]


class TestRanks:
    @pytest.fixture(scope="class")
    def many(self, content):
        """Ten settings with the same order: average ranks 1, 2 and 3, and a critical difference of 1.05."""
        return {f"c{n}": content(private={"source": f"npz:{n}.npz"}) for n in range(10)}

    def test_methods_that_are_told_apart(self, prose, columns, many):
        (picture,) = overview.ranks(columns(**many))
        caption = prose(picture.caption)
        assert "over 10 comparisons" in caption and "differ from 1.05 on" in caption
        assert "is rejected by Friedman's test (p = 4.5e-05)." in caption
        (axes,) = picture.figure.axes
        written = [text.get_text() for text in axes.texts]
        assert {"KT-pFL  1.0 ", "Local-only  2.0 ", " 3.0  FedMD"} <= set(written)
        bars = [line for line in axes.lines if line.get_color() == INK and len(line.get_xdata()) == 2]
        assert [sorted(line.get_xdata()) for line in bars if max(line.get_ydata()) < 0] == [[1, 2], [2, 3]]

    def test_ties_everywhere_reject_nothing(self, prose, columns, content, result):
        level = [result(name, 0.8, 0.9) for name in ("kt_pfl", "fedmd", "local")]
        many = {f"c{n}": content(level, private={"source": f"npz:{n}.npz"}) for n in range(4)}
        (picture,) = overview.ranks(columns(**many))
        caption = prose(picture.caption)
        assert "is not rejected by Friedman's test (p = 1), so no difference between ranks is significant" in caption

    def test_with_too_few_a_sentence_says_why(self, prose, columns, two, content, study):
        told = "need at least 3 comparisons with 3 methods in common; there are"
        assert f"{told} 2 comparisons with 3 methods in common" in prose(overview.ranks(columns(**two))[0].text)
        pair = content(study[:2], private={"source": "cifar10"})
        assert f"{told} 3 comparisons with 2 methods in common" in overview.ranks(columns(**two, c=pair))[0].text
        assert overview.ranks({}) == []


@pytest.mark.usefixtures("blank_figures")
class TestOneArchitecture:
    """Comparisons of the paper's Table 2 beside those of Table 1."""

    @pytest.fixture
    def both(self, content, result):
        results = [result(name, 0.8, 0.9) for name in ("kt_pfl_params", "fedavg", "fedavg_ft", "local")]
        homo = {"architectures": ["cnn"], "private": {"source": "cifar10"}, "public": {"source": "open_part"}}
        return {
            "compare_homo_cifar/a": content(results, **homo),
            "compare_homo_cifar/b": content(results, **homo, clients=100, participation=0.1),
            "compare_hetero": content(),
        }

    def test_they_come_after_the_others_with_their_number_of_clients(self, columns, both):
        assert list(columns(**both)) == [
            "Fashion-MNIST, two labels",
            "CIFAR-10, two labels, one architecture, 20 clients",
            "CIFAR-10, two labels, one architecture, 100 clients",
        ]

    def test_each_kind_has_tables_of_its_own(self, both):
        built = overview.build(both)
        headings = re.findall(r"^## (.*)$", built.markdown, re.MULTILINE)
        kinds = [heading for heading in headings if heading.startswith(("Accuracy", "Differences"))]
        assert kinds == [
            *("Accuracy", "Accuracy, one architecture"),
            *("Differences", "Differences, one architecture", "Accuracy by round"),
        ]
        assert built.html.count("<h2>") > 8
        assert len(built.latex()) == 4
        first, second, *_ = re.findall(r"## Accuracy.*?(?=\n## )", built.markdown, re.DOTALL)
        assert "FedAvg" not in first
        assert "FedMD" not in second
        assert built.markdown.count("*Accuracy:*") == 1  # what the entries mean stands once, below both
        assert "then over seeds; ±" in built.markdown  # each comparison has its own

    def test_the_papers_numbers_are_of_table_2_and_another_setting(self, columns, both):
        table = overview.paper_table(columns(**both))
        assert {"CIFAR-10, 20 clients", "CIFAR-10, 100 clients"} < set(keys(table))
        both_columns = ["CIFAR-10, 20 clients", "CIFAR-10, 100 clients"]
        assert [row(table, "FedAvg-Local FT")[name] for name in both_columns] == ["42.88", "50.91"]
        assert [row(table, "FedAvg")[name] for name in both_columns] == ["51.94", "43.56"]
        shown = keys(overview.accuracy_table(columns(**both)))
        assert not [name for name in shown if re.search("CIFAR.*paper", name)]

    def test_the_summary_speaks_of_both(self, prose, columns, both):
        said = prose(overview.summary(columns(**both)))
        assert said.startswith("KT-pFL is significantly above local-only in 1 of 1 comparison,")
        assert "KT-pFL (parameters) is significantly above local-only in 0 of 2 comparisons" in said
        assert "above FedAvg in 0 of 2 comparisons" in said

    def test_without_the_others(self, both):
        del both["compare_hetero"]
        built = overview.build(both)
        assert "## Accuracy, one architecture" in built.markdown
        assert "*Bold:*" in built.markdown
        assert "(figures/accuracy.svg)" in built.markdown


LEVEL = {"kt_pfl": (0.8, 0.9, 0.85), "local": (0.9, 0.8, 0.85), "sim_pfl": (0.9, 0.8, 0.85)}


class TestSummary:
    def test_counts(self, prose, columns, content, study, result):
        level = [result(name, *means) for name, means in LEVEL.items()]
        found = columns(a=content(), b=content(level, private={"source": "digits"}))
        said = prose(overview.summary(found))
        assert "KT-pFL is significantly above local-only in 1 of 2 comparisons, below it in 0, neither in 1;" in said
        assert "significantly above Sim-pFL in 0 of 1 comparison, below it in 0, neither in 1 (" in said

    def test_two_seeds_decide_nothing(self, prose, columns, content, result):
        found = columns(a=content([result("kt_pfl", 0.9, 0.9), result("local", 0.8, 0.8)]))
        said = prose(overview.summary(found))
        assert "above local-only in 0 of 1 comparison, below it in 0, neither in 1 (1 with fewer than 3 seeds)" in said

    def test_without_the_two(self, prose, columns, content, result):
        said = prose(overview.summary(columns(a=content([result("fedmd", 0.8), result("local", 0.8)]))))
        assert said.startswith("No comparison has both KT-pFL and local-only")


@pytest.mark.usefixtures("blank_figures")
class TestReport:
    def test_words(self, prose, built):
        prose(words_of(built))

    def test_all_forms(self, built):
        assert list(built.figures) == ["accuracy", "communication"]
        for text in (built.html, built.markdown):
            assert "02-fedmd" in text
            assert "../compare_b/two_labels/report.html" in text
            assert "training.epochs" in text
        assert re.findall(r"!\[[^]]*\]\(figures/(\w+)\.svg\)", built.markdown) == list(built.figures)
        assert len(built.latex()) == 2
        assert "±" not in str(built.latex())
        assert max(map(len, built.console.splitlines())) <= 100

    def test_of_the_reports_on_one_federation_the_newest_is_shown(self, content):
        """With more rounds it is another report; with other data it is another comparison."""
        rounds = {f"compare_x/emnist-{t}": content(rounds=t) for t in (1, 2)}
        built = overview.build({**rounds, "compare_x/other": content(private={"source": "digits"})})
        assert built.facts[0] == "2 comparisons"
        links = {section.title: section.blocks for section in built.sections if "eports" in section.title}
        assert {place.split("/")[2] for place in links["Reports"][0].addresses.values()} == {"emnist-2", "other"}
        assert list(links["Earlier reports"][0].addresses) == ["compare_x/emnist-1"]

    def test_the_page_needs_nothing_else(self, built):
        html = built.html
        assert not re.search(r"<(script src|link|iframe|img)\b|@import|url\((?!#)", html)
        ids = re.findall(r'\bid="([^"]+)"', html)
        assert len(ids) == len(set(ids))

    def test_the_order_of_reading_changes_nothing(self, two, built):
        assert overview.build(dict(reversed(two.items()))).html == built.html

    def test_experiments_with_one_method_are_no_comparisons(self, two, built, content, study):
        alone = {"hetero_digits": content(study[:1], private={"source": "digits"})}
        assert overview.build({**two, **alone}).markdown == built.markdown

    def test_nothing_to_look_over_is_refused(self, content, study):
        told = "run one first, for example `kedro run --pipelines=compare_"
        for given in ({"hetero_digits": content(study[:1])}, {}):
            with case(*given), pytest.raises(InputError, match=told):
                overview.build(given)

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("methods", "fedmd", "final"), {}),
            (("methods", "fedmd", "final", "after_transfer", "mean"), "high"),
            (("methods", "fedmd", "news"), 1),
            (("methods",), [1]),
            (("settings",), None),
            (("settings", "partition"), {}),
            (("settings", "public"), {}),
        ],
    )
    def test_what_is_no_comparison_any_more_is_refused_with_its_place(self, two, content, path, value):
        """One of an older version, or edited."""
        edited = json.loads(json.dumps(content()))
        *groups, name = path
        reduce(getitem, groups, edited)[name] = value
        with pytest.raises(InputError, match=r"^old/one/comparison\.json .*: delete its folder, or run its comparison"):
            overview.build({**two, "old/one": edited})

    @pytest.mark.parametrize("edited", [[], {}, {"methods": {}}])
    def test_so_is_what_never_was_one(self, two, edited):
        with pytest.raises(InputError, match=r"^x/comparison\.json "):
            overview.build({**two, "x": edited})


def by_title(columns):
    return {title: list(each.methods.values()) for title, each in columns.items()}


class TestFigures:
    @pytest.mark.usefixtures("blank_figures")
    def test_only_the_thick_lines_have_bands(self, columns, content):
        """KT-pFL and local-only; FedMD, which has three seeds like them, has a line alone."""
        (axes,) = figures.accuracy_panels(by_title(columns(a=content()))).axes
        assert sorted(line.get_linewidth() for line in axes.lines) == [1, 2, 2]
        assert len(axes.collections) == 2

    def test_panels(self, columns, two):
        found = columns(**two)
        for figure in (figures.accuracy_panels(by_title(found)), figures.traffic_panels(by_title(found))):
            shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
            assert shown == list(found)

    @pytest.mark.usefixtures("blank_figures")
    def test_an_odd_panel_hides_its_neighbor(self, columns, two, content):
        figure = figures.accuracy_panels(by_title(columns(**two, c=content(private={"source": "cifar10"}))))
        assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]

    @pytest.mark.usefixtures("blank_figures")
    def test_traffic_is_in_megabytes(self, columns, content):
        """Two clients send 1 MB each in the one round; local-only sends nothing."""
        figure = figures.traffic_panels(by_title(columns(a=content())))
        assert [each.get_xdata()[0] for each in figure.axes[0].get_lines()[:2]] == [2.0, 2.0]
        assert "Local-only (sends nothing)" in [text.get_text() for text in figure.legends[0].get_texts()]
