import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from itertools import pairwise

import blank
import pytest
from cases import case
from finished_runs import under
from report_prose import words_of

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.provenance import Provenance
from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.core.warnings import Warned
from ktpfl_pipeline.methods import METHODS
from ktpfl_pipeline.reports import comparison, measures
from ktpfl_pipeline.reports.answer import advice, tiles
from ktpfl_pipeline.reports.model import Column, Content, Links, Notes, Picture, Section, Table, Text
from ktpfl_pipeline.reports.render import markdown
from ktpfl_pipeline.reports.render.html import unbroken
from ktpfl_pipeline.reports.style import look, readable

VOID = {"meta", "link", "br", "hr", "img", "input", "use", "path", "rect", "image", "stop"}


class Page(HTMLParser):
    """Collects what is checked of a page, and that its elements are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.loads, self.links, self.text = [], [], [], [], []
        self.elements = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.open += [] if tag in VOID else [tag]
        self.look(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self.look(tag, attributes)

    def look(self, tag, attributes):
        values = dict(attributes)
        self.elements.append((tag, values))
        if tag == "a" and "href" in values:
            self.links.append(values.pop("href"))
        self.ids += [values["id"]] if "id" in values else []
        self.loads += [values[name] for name in ("src", "href", "xlink:href", "srcset", "data") if name in values]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data.replace("\N{NO-BREAK SPACE}", " "))

    @property
    def tags(self):
        return {tag for tag, _ in self.elements}


def intervals(text):
    """Return the intervals in a text: ``[+2.0, +2.0]``."""
    return re.findall(r"\[[^]]*\]", text)


@pytest.fixture(scope="module")
def settings():
    return {
        "seeds": [0, 1, 2],
        "clients": 2,
        "architectures": ["lenet", "mlp"],
        "private": {"source": "digits", "classes": None},
        "public": {"source": "open_part", "batch": 500},
        "partition": {"scheme": "two_labels"},
        "training": {"epochs": 5, "learning_rate": 0.05},
    }


@pytest.fixture(scope="module")
def built(study, settings):
    return comparison.build("compare_hetero_digits", under(settings, study))


@pytest.fixture(scope="module")
def alone(result, settings):
    """KT-pFL without local-only, with one seed; `built` shows what the same figures look like."""
    with blank.blank_figures():
        return comparison.build("hetero_digits", under({**settings, "seeds": [0]}, [result("kt_pfl", 0.9)]))


class TestSummary:
    @pytest.fixture
    def said(self, prose):
        """Return the summary of these results, whose words are pinned."""
        return lambda *results: prose(comparison.summary(Comparison(results)))

    def test_above(self, said, study):
        text = said(*study)
        assert intervals(text) == ["[+2.0, +2.0]"]
        assert text.startswith("KT-pFL is 2.0 percentage points above local-only") and "a significant" in text
        assert text.endswith("corrected for 2 methods. Significantly below local-only: FedMD (−8.0).")

    def test_below_and_the_other_point_says_otherwise(self, said, result):
        """At the end -10, -10 and -9.7: -9.9 ± 4.303 · 0.173 / √3; before it always +2."""
        fedmd = result("fedmd", 0.78, 0.79, 0.803, after_local=(0.90, 0.91, 0.92))
        text = said(fedmd, result("local", 0.88, 0.89, 0.90))
        assert intervals(text) == ["[−10.3, −9.5]", "[+2.0, +2.0]"]
        assert text.startswith("FedMD is 9.9 percentage points below local-only training after transfer, a significant")
        assert "After local training, before transfer, it differs by +2.0" in text

    def test_an_interval_with_zero_decides_nothing(self, said, result):
        """+5, +1 and 0: 2 ± 4.303 · 2.646 / √3."""
        text = said(result("kt_pfl", 0.90, 0.86, 0.85), result("local", 0.85, 0.85, 0.85))
        assert intervals(text) == ["[−4.6, +8.6]"]
        assert text.startswith("KT-pFL and local-only training do not differ significantly") and ": +2.0 " in text

    @pytest.mark.parametrize("seeds", [1, 2])
    def test_fewer_than_three_seeds_decide_nothing(self, prose, result, seeds):
        for mean, found in ((0.9, "is 10.0 percentage points above"), (0.8, "has the same mean as")):
            results = [result("kt_pfl", *[mean] * seeds), result("local", *[0.8] * seeds)]
            text = prose(comparison.summary(Comparison(results)), f"{mean}")
            assert text.startswith(f"KT-pFL {found} local-only") and f"with {seeds} seed" in text
            assert intervals(text) == [] and "significant" not in text and "may be chance" in text

    def test_a_small_difference_is_none_to_round_away(self, said, result):
        text = said(result("kt_pfl", 0.8003, 0.8004, 0.8005), result("local", 0.8, 0.8, 0.8))
        assert text.startswith("KT-pFL is less than 0.1 percentage points above local-only")

    def test_a_better_baseline_is_named(self, said, result):
        text = said(result("kt_pfl", *[0.8] * 3), result("fedmd", *[0.9] * 3), result("local", *[0.7] * 3))
        assert intervals(text) == ["[+10.0, +10.0]"] * 2
        assert text.startswith("KT-pFL is 10.0 percentage points above local-only")
        assert "FedMD has the highest mean, 10.0 percentage points above KT-pFL" in text
        assert text.endswith("Significantly above local-only: FedMD (+20.0).")

    def test_a_baseline_that_is_only_nominally_better_is_not_said_to_be(self, said, result):
        text = said(result("kt_pfl", *[0.8] * 3), result("fedmd", 0.9, 0.81, 0.81), result("local", *[0.7] * 3))
        assert "FedMD has the highest mean, 4.0 percentage points above KT-pFL" in text
        assert "the difference is not significant" in text

    def test_without_local_only(self, said, result):
        assert "no local-only" in said(result("kt_pfl", 0.8))

    def test_local_only_alone(self, said, result):
        text = said(result("local", 0.8))
        assert "reaches 80.0 %" in text and "no method that exchanges" in text

    def test_local_only_as_the_subject_among_others(self, prose, study):
        text = prose(comparison.summary(under({"subject": "local"}, study)))
        assert "reaches 88.0 ± 1.0 %. KT-pFL has the highest mean, 2.0 percentage points above Local-only" in text
        assert "Significantly above local-only: KT-pFL (+2.0). Significantly below local-only: FedMD (−8.0)." in text

    def test_no_common_seed(self, said, result, run):
        assert "no seed in common" in said(result("kt_pfl", 0.8), summarize([run("local", 7)], {}))


class TestPage:
    def test_parses_and_ids_are_unique(self, built, alone):
        for text in (built.html, alone.html):
            page = Page(text)
            assert page.open == []
            assert len(set(page.ids)) == len(page.ids)
            assert {"table", "svg", "figure", "dl"} <= page.tags

    def test_loads_nothing(self, built):
        page = Page(built.html)
        assert page.loads  # a drawing refers to its own parts
        assert all(value.startswith(("#", "data:")) for value in page.loads)
        assert not page.tags & {"link", "iframe", "img"}
        assert not re.search(r"@import|url\((?!#)|fetch\(|import\(", built.html)
        ours = {*built.data, *(f"#{name}" for name in page.ids)}
        assert page.links
        assert set(page.links) <= ours, "links lead to a file beside the page or to a place in it"

    def test_words(self, prose, built, alone):
        prose(words_of(built), "three methods")
        prose(words_of(alone), "one method")

    def test_content(self, built, study):
        text = " ".join("".join(Page(built.html).text).split())
        assert comparison.summary(Comparison(study)) in text
        assert "digits" in text
        assert all(run.run_id in text and run.key in text for result in study for run in result.runs)
        assert "instead of EMNIST" not in text, "the data are not the paper's, so its numbers are not shown"
        assert "last evaluation, then over 3 seeds" in text
        assert "gives a client other data" not in text, "each seed gives a client the same data here"
        assert "divergence_weight" in text  # a default that the settings do not name
        assert "open_part" in text

    @pytest.mark.usefixtures("blank_figures")
    def test_names_are_escaped(self, run, settings):
        name, source = "<script>alert(1)</script>", "npz:a&b<c>.npz"
        finished = summarize([run("<b>_mine & co")], {})
        built = comparison.build(name, under({**settings, "private": {"source": source}}, [finished]))
        page = Page(built.html)
        assert not page.tags & {"c", "b_mine"}
        assert built.html.count("<script") == 1  # the page's own
        assert "<b>_mine" not in built.html
        assert name in "".join(page.text)
        assert r"\textless{}b\textgreater{}\_mine \& co" in built.latex()["tables/table.tex"]

    def test_no_name_is_a_link_or_html_in_markdown(self):
        name = "[a](javascript:1)<img src=x>"
        blocks = [Text(name), Notes({name: name}), Links({name: "page.html"}), Picture("curve", None, name)]
        blocks.append(Table("t", [Column("name", name)], [{"name": name}]))
        content = Content(name, name, name, [name], [Section(name, blocks)], [], name, warnings={"Kind": name})
        written = markdown.document(content)
        assert written.count("javascript:1") == 13
        assert re.findall(r"(?<!\\)\]\((?!page.html|figures/)|(?<!\\)<", written) == []

    @pytest.mark.usefixtures("blank_figures")
    def test_the_same_results_give_the_same_report(self, study, settings):
        """Drawings too: see `TestDrawing.test_svg`."""
        one, other = (comparison.build("compare_hetero_digits", under(settings, study)) for _ in range(2))
        assert (one.html, one.markdown, one.latex(), one.console) == (
            other.html,
            other.markdown,
            other.latex(),
            other.console,
        )


def test_a_method_of_the_main_table_links_to_its_runs(built):
    for method in ("kt_pfl", "fedmd"):
        assert built.html.count(f'href="#runs-{method}"') == 1
        assert built.html.count(f'id="runs-{method}"') == 1


def test_no_line_of_a_page_ends_within_a_percentage_or_an_interval():
    told = "+1.0 points, 95 % interval [−1.0, +3.0] over seeds 0, 1"
    assert unbroken(told) == "+1.0 points, 95\N{NO-BREAK SPACE}% interval [−1.0,\N{NO-BREAK SPACE}+3.0] over seeds 0, 1"


class TestAccessible:
    """What plain code can see of it; contrasts and the rest are axe-core's."""

    @pytest.fixture(scope="class", params=["comparison", "alone"])
    def page(self, request, built, alone):
        return Page({"comparison": built, "alone": alone}[request.param].html)

    def test_headings_go_down_in_steps(self, page):
        levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(lower - upper <= 1 for upper, lower in pairwise(levels))

    def test_headings_of_tables_say_what_they_head(self, page):
        heads = [values.get("scope") for tag, values in page.elements if tag == "th"]
        assert set(heads) == {"col", "row"}

    def test_every_figure_has_an_alternative(self, page):
        drawn = [values for tag, values in page.elements if tag == "svg"]
        assert drawn
        assert all(values["role"] == "img" and len(values["aria-label"]) > 20 for values in drawn)

    def test_what_scrolls_can_be_reached_and_has_a_name_of_its_own(self, page):
        regions = [values for _, values in page.elements if values.get("role") == "region"]
        assert all(values["tabindex"] == "0" for values in regions)
        assert len({values["aria-label"] for values in regions}) == len(regions)

    def test_language_and_one_main_part(self, page):
        assert ("html", {"lang": "en"}) in page.elements
        assert sum(tag == "main" for tag, _ in page.elements) == 1

    def test_text_in_a_methods_color_can_be_read(self):
        """Contrast to white of 4.5 to 1, by WCAG's formula."""
        for method in METHODS:
            with case(method):
                parts = [int(readable(look(method).color)[place : place + 2], 16) / 255 for place in (1, 3, 5)]
                linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
                assert 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05) > 4.4


class TestFirstGlance:
    @pytest.mark.usefixtures("blank_figures")
    def test_title_and_where_it_is_from(self, study, settings):
        made = Provenance("2026-11-22 06:00:00+00:00", "kedro run", "abc1234", "me", "a machine", "Python 3")
        built = comparison.build("compare_hetero_digits", under(settings, study), made)
        assert built.title == "3 methods on handwritten digits"
        text = "".join(Page(built.html).text)
        for told in (
            comparison.identity(Comparison(study)),
            made.date,
            made.command,
            made.commit,
            made.machine,
            made.versions,
        ):
            assert told in text
            assert told in built.markdown

    def test_data_in_a_title(self):
        for source, title in (
            ("emnist:letters", "EMNIST"),
            ("npz:some/where/mine.npz", "mine.npz"),
            ("camera_traps", "camera_traps"),
        ):
            with case(source):
                assert comparison.data_title(source) == title

    def test_tiles(self, prose, result):
        """FedMD 15 above local-only with each seed; KT-pFL +5, +1 and +3: 3 ± 4.303 · 2 / √3."""
        results = [result("kt_pfl", 0.75, 0.71, 0.73), result("fedmd", *[0.85] * 3), result("local", *[0.7] * 3)]
        shown = tiles(Comparison(results))
        assert [(tile.title, tile.value) for tile in shown] == [
            *(("FedMD", "85.0 ± 0.0 %"), ("KT-pFL", "73.0 ± 2.0 %"), ("Local-only", "70.0 ± 0.0 %")),
        ]
        assert [tile.role.split()[0] for tile in shown] == ["highest", "subject", "local-only"]
        ends = ("percentage points to local-only: better", "percentage points to local-only: not significant")
        assert all(
            tile.note.endswith(end) for tile, end in zip(shown, (*ends, "reference of all differences"), strict=True)
        )
        assert [intervals(tile.note) for tile in shown] == [["[+15.0, +15.0]"], ["[−2.0, +8.0]"], []]
        prose("\n".join(f"{tile.role}: {tile.note}" for tile in shown))
        assert tiles(Comparison(results[::2]))[0].role == f"{shown[0].role}, {shown[1].role}"

    @pytest.fixture
    def advised(self, prose):
        """Return the advice of these results on the method and on the seeds, whose words are pinned."""

        def made(*results):
            which, seeds = advice(Comparison(results)).values()
            return prose(which, "method"), prose(seeds, "seeds")

        return made

    def test_advice(self, advised, result):
        """KT-pFL +5, +1 and +3, and FedMD 10, 14 and 12 above: t(17) · 2 / √18 is 0.99 points."""
        which, seeds = advised(
            result("kt_pfl", 0.75, 0.71, 0.73), result("fedmd", *[0.85] * 3), result("local", *[0.7] * 3)
        )
        assert which.startswith("FedMD has the highest mean, significantly above every other")
        pairs = ("KT-pFL and local-only", "FedMD and KT-pFL")
        assert seeds.partition(": ")[2] == "; ".join(f"{pair}: about 18 instead of 3" for pair in pairs) + "."

    def test_a_cheaper_method_that_is_as_good_is_named(self, advised, result):
        which, _ = advised(result("kt_pfl", 0.75, 0.71, 0.73), result("local", *[0.7] * 3))
        assert which.startswith("KT-pFL has the highest mean; not significantly below it: Local-only.")
        assert "least traffic is Local-only (sends nothing; KT-pFL: 2.00 MB)" in which

    def test_a_noisy_difference_is_no_equality(self, advised, result):
        which, seeds = advised(result("kt_pfl", 0.37, 0.53, 0.69), result("local", 0.5, 0.5, 0.5))
        assert which.startswith("KT-pFL has the highest mean; not significantly below it: Local-only.")
        assert "KT-pFL and local-only: more than 100" in seeds

    def test_a_method_that_leads_with_the_common_seeds_is_not_below(self, advised, result):
        best, other = result("kt_pfl", 0.90, 0.91, 0.90), result("fedmd", 0.95, 0.96, 0.95, 0.3, 0.3, 0.3)
        which, _ = advised(best, other, result("local", 0.8, 0.8, 0.8))
        assert which.startswith("KT-pFL has the highest mean") and which.endswith("not significantly below it: FedMD.")

    @pytest.mark.parametrize("seeds", [1, 2])
    def test_fewer_than_three_seeds_give_no_advice(self, advised, result, seeds):
        which, needed = advised(result("kt_pfl", *[0.9] * seeds), result("local", *[0.8] * seeds))
        assert f"with {seeds} seed" in which and "may be chance" in which
        assert "KT-pFL and local-only: at least 3" in needed


@pytest.mark.usefixtures("blank_figures")
class TestOtherForms:
    def test_markdown_refers_to_the_figures(self, built):
        found = re.findall(r"!\[[^]]*\]\(figures/(\w+)\.svg\)", built.markdown)
        names = [
            *("differences", "accuracy", "clients", "coefficients_kt_pfl", "traffic"),
            *("spread", "labels"),
        ]
        assert sorted(found) == sorted(names)
        assert list(built.figures) == names
        assert "training:\n  epochs: 5\n  learning_rate: 0.05\n" in built.markdown
        assert "KT-pFL:\n  update: eg\n" in built.markdown
        assert "\n  rho: 0.5\n" in built.markdown
        assert "02-fedmd" in built.markdown

    def test_latex(self, built):
        tables = 7  # accuracy, by architecture, fairness, work, differences, traffic, time
        written = built.latex()
        assert len(written) == tables
        assert all(text.count(r"\begin{") == text.count(r"\end{") == 1 for text in written.values())
        assert all(text.isascii() for text in written.values())
        caption, table = written["tables/table.tex"].split(r"\begin{tabular}")
        assert "two labels" in " ".join(caption.replace("\n%", "").split())
        assert all(line.startswith("%") for line in caption.splitlines())
        assert r"\shortstack[r]{After\\transfer\\(\%)}" in table

    def test_columns_of_latex_can_be_chosen(self, built):
        for names in (["minus_local", "Traffic"], ["Minus local-only", "traffic"]):
            table = built.latex(names)["tables/table.tex"].split(r"\begin{tabular}")[1]
            assert table.startswith("{lrr}")
            assert "transfer" not in table

    def test_differences_are_everywhere(self, built):
        assert "**+10.0** [+7.5, +12.5]" in built.markdown
        assert '<strong>+10.0</strong><span class="spread"> [+7.5, +12.5]</span>' in built.html
        assert r"\textbf{+10.0} [+7.5, +12.5]" in built.latex()["tables/differences.tex"]

    @pytest.mark.usefixtures("blank_figures")
    def test_everything_that_was_kept_is_shown(self, whole, result, settings):
        built = comparison.build("x", under(settings, [whole, result("local", 0.6, 0.6)]))
        assert list(built.figures) == [
            *("differences", "accuracy", "clients", "coefficients_kt_pfl", "matrix_over_rounds"),
            *("traffic", "spread", "theorem", "labels"),
        ]
        for text in (built.html, built.markdown):
            assert "Theorem 1" in text
            assert "4 of 4" in text
            assert "better by more than 5.0e-09 nats" in text  # the largest certificate
        assert "tables/theorem.tex" in built.latex()
        assert Page(built.html).open == []

    def test_what_was_not_kept_is_left_out(self, built, alone):
        for each in (built, alone):
            assert not {"theorem", "matrix_over_rounds"} & each.figures.keys()
            assert "Theorem 1" not in each.html + each.markdown + str(each.latex())
        assert "minus each rival" not in alone.html + alone.markdown

    def test_other_matrices_share_a_figure(self, run, settings):
        results = [
            summarize([run(method, coefficients=[[0.5, 0.5], [0.5, 0.5]])], {})
            for method in ("sim_pfl", "kt_pfl", "comet")
        ]
        built = comparison.build("x", under(settings, results))
        assert "coefficients_kt_pfl" in built.figures
        assert [axes.get_title(loc="left") for axes in built.figures["coefficients_others"].axes[:2]] == [
            "Sim-pFL",
            "COMET",
        ]

    def test_data(self, built, study, settings):
        assert json.loads(built.data["comparison.json"]) == under(settings, study).to_dict("compare_hetero_digits")
        assert built.files.keys() == {
            *("report.html", "report.md", "table.txt", "comparison.json"),
            *("runs.csv", "rounds.csv", "clients.csv", "differences.csv", "architectures.csv"),
        }
        assert re.fullmatch("digits-two_labels-[0-9a-f]{8}", built.folder)

    def test_console(self, built, alone):
        for text in (built.console, alone.console):
            assert max(map(len, text.splitlines())) <= 100
        assert built.console.startswith("compare_hetero_digits\nKT-pFL is 2.0 percentage points above")
        assert "Not like for like" not in built.console

    def test_unequal_seeds_are_flagged_everywhere(self, study, result, settings):
        built = comparison.build("x", under(settings, [study[0], result("local", 0.8)]))
        for text in (built.html, built.markdown, built.console):
            assert "Not like for like" in text

    def test_the_warnings_of_all_runs_are_in_one_box_at_the_top(self, study, settings):
        """Equal warnings of two methods are one; those of a kind follow each other."""
        first, second = Warned("Absent classes", "no 3"), Warned("Absent classes", "no `4`")
        warned = [
            replace(each, runs=[replace(run, warnings=[first, other]) for run in each.runs])
            for each, other in zip(study, (first, second, first), strict=False)
        ]
        built = comparison.build("x", under(settings, warned))
        assert built.html.index("<b>Absent classes:</b> no 3 no `4`") < built.html.index('class="summary"')
        assert built.markdown.index(r"> - **Absent classes:** no 3 no \`4\`") < built.markdown.index(built.summary)
        assert built.console.startswith("x\n! Absent classes: no 3 no `4`\n")
        assert json.loads(built.data["comparison.json"])["warnings"] == [asdict(first), asdict(second)]

    def test_one_client_and_no_matrix(self, run, settings):
        finished = [
            summarize([run(method, after_transfer=[(0.5,)], coefficients=[[1.0]] if method == "kt_pfl" else None)], {})
            for method in ("kt_pfl", "local")
        ]
        assert list(comparison.build("x", under(settings, finished)).figures) == [
            *("differences", "accuracy", "clients", "traffic", "spread", "labels")
        ]

    def test_settings_may_be_missing(self, result):
        built = comparison.build("x", Comparison([result("kt_pfl", 0.8)]))
        assert built.summary.startswith("KT-pFL reaches 80.0 %")
        assert "KT-pFL" in built.html

    def test_what_makes_no_report_is_refused(self, study, run, settings):
        with pytest.raises(ValueError, match="at least one"):
            comparison.build("x", Comparison([]))
        three = summarize([run("local", after_transfer=[(0.5, 0.6, 0.7)])], {})
        with pytest.raises(ValueError, match="same clients"):
            comparison.build("x", under(settings, [study[0], three]))


class TestOneArchitecture:
    """Models travel: the second point is after aggregation, and models are set against predictions in bytes."""

    @pytest.fixture(scope="class")
    def results(self, run):
        """Three clients with models of 4,000 bytes, two of them in each of two rounds."""
        points = {"after_transfer": [(0.5, 0.6, 0.7)] * 2, "after_local": [(0.7, 0.6, 0.5)] * 2}
        runs = []
        for method in ("kt_pfl_params", "fedavg", "local"):
            full = run(method, **points, knowledge=0, parameters=4000)
            history = [
                replace(record, cohort=[0, 2], traffic={name: sent[:2] for name, sent in record.traffic.items()})
                for record in full.history
            ]
            runs.append(replace(full, history=history, architectures=["mlp"] * 3))
        return [summarize([each], {}) for each in runs]

    def test_what_is_said_of_models_that_travel(self, prose, results, settings):
        """The subject is KT-pFL on parameters; a client is absent; 4,000 bytes are 4 for each of 3 classes of 333."""
        with blank.blank_figures():
            built = comparison.build("compare_homo_digits", under(settings, results))
        text = prose(words_of(built))
        assert built.summary.startswith("KT-pFL (parameters) has the same mean as local-only")
        assert {"3 clients: 3 MLP", "2 of them per round"} <= {*built.facts}
        assert "has 2 of 3 clients; the others are evaluated without training" in text
        assert "uploads 4 kB of parameters" in text
        assert "with 3 classes, those of 333 public samples have as many bytes" in text
        assert "the plain average" not in text, "there is no matrix"

    @pytest.mark.usefixtures("blank_figures")
    def test_predictions_are_not_set_against_themselves(self, run):
        sent = replace(run("kt_pfl"), architectures=["mlp"] * 2)
        *_, said = measures.communication(Comparison([summarize([sent], {})]))
        assert "Sums over" in said.text and "as many bytes" not in said.text


@pytest.mark.parametrize("names", [[], ["Essen", "Ulm"]])
@pytest.mark.usefixtures("blank_figures")
def test_a_hospital_keeps_its_own_patients_with_every_seed(prose, study, names):
    """Only which of them are private, and not public or for testing, follows the seed."""
    result = study[0]
    runs = [replace(run, names=names, label_counts=[[n, 1]] * 2) for n, run in enumerate(result.runs, start=1)]
    (section,) = (
        each
        for each in comparison.build("x", Comparison([replace(result, runs=runs)])).sections
        if "by client" in each.title
    )
    caption = prose(section.blocks[0].caption)
    assert ("gives a client other data" in caption) == (not names)
    assert ("other private samples of a client" in caption) == bool(names)


def test_the_same_runs_are_the_same_report(study, result):
    assert comparison.identity(Comparison(study)) == comparison.identity(Comparison(list(study)))
    assert comparison.identity(Comparison(study)) != comparison.identity(Comparison(study[:2]))
    assert comparison.identity(Comparison(study)) != comparison.identity(Comparison([*study[:2], result("local", 0.8)]))


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("origin", ["tuned", "configured"])
def test_where_the_hyperparameters_are_from(prose, study, settings, origin):
    made = comparison.build("compare_hetero_digits", under({**settings, "hyperparameters": origin}, study))
    (section,) = (each for each in made.sections if each.title == "Hyperparameters")
    said = prose(section.blocks[0].text)
    assert said.startswith(f"{origin.capitalize()} for every method")
    assert said in "".join(Page(made.html).text)
    assert said in made.markdown
    assert ("tuned hyperparameters" in made.facts) == (origin == "tuned")


@pytest.mark.usefixtures("blank_figures")
class TestFacts:
    def test_what_was_done_to_the_images(self, run, settings):
        def facts(**shapes):
            made = replace(run("kt_pfl", 0, [(0.5, 0.7)] * 2), **shapes)
            return comparison.build("x", under(settings, [summarize([made], {})]))

        told = facts(native=[1, 8, 8], shape=[1, 28, 28])
        assert told.facts[1] == "8 × 8 gray, resized to 28 × 28"
        assert facts(native=[9, 128], shape=[9, 128]).facts[1] == "series of 9 × 128"
        assert facts(native=[80], shape=[80], kind="tokens").facts[1] == "texts of 80 tokens"
        assert facts(native=[80], shape=[80], kind="features").facts[1] == "vectors of 80"
        assert facts().facts[1].startswith("partition"), "results of before said nothing of it"

    def test_divergences_are_counted_by_method(self, run, settings):
        made = run("kt_pfl", 0, [(0.5, 0.7)] * 2)
        diverged = replace(made, history=[replace(record, diverged=[0]) for record in made.history])
        results = [summarize([diverged], {}), summarize([run("fedmd", 0, [(0.5, 0.7)] * 2)], {})]
        assert "diverged and a client was skipped or restored: KT-pFL 2" in str(
            comparison.build("x", under(settings, results)).facts
        )
        assert "diverged" not in str(comparison.build("x", under(settings, results[1:])).facts)

    def test_lean_predictions_and_private_training_are_named(self, prose, run, settings):
        made = run("kt_pfl", 0, [(0.5, 0.7)] * 2)
        spent = replace(made, history=[*made.history[:-1], replace(made.history[-1], epsilon=[1.5, 2.254])])
        privacy = {"noise_multiplier": 1.0, "max_grad_norm": 0.5, "delta": 1e-5}
        lean = {"encoding": "top_k", "k": 2, "cache": 5, "select": 0.25, "noise": 0.1}
        built = comparison.build(
            "x", under({**settings, "training": {"privacy": privacy}, "knowledge": lean}, [summarize([spent], {})])
        )
        prose("\n".join(built.facts))
        *_, sent, trained = built.facts
        told = ("the 2 most probable", "not sent again within 5 rounds", "25 % with the highest", "noise of σ = 0.1")
        assert sent.startswith("predictions: ") and all(each in sent for each in told)
        assert trained.startswith("private local training: noise 1, gradients clipped to 0.5, ε at most 2.25 at δ = 1e")
        plain = {
            **settings,
            "training": {"privacy": None},
            "knowledge": {"encoding": "float32", "cache": 0, "select": 1.0, "noise": 0.0},
        }
        facts = str(comparison.build("x", under(plain, [summarize([made], {})])).facts)
        assert "predictions: " not in facts
        assert "private local training" not in facts

    def test_models_that_differ_between_seeds_are_those_of_one(self, result, settings):
        """Other clients are newcomers with another seed."""
        same = result("kt_pfl", 0.8, 0.9)
        assert "2 clients: 1 LeNet, 1 MLP" in comparison.build("x", under(settings, [same])).facts
        other = replace(same, runs=[same.runs[0], replace(same.runs[1], architectures=["mlp", "mlp"])])
        assert "2 clients: 1 LeNet, 1 MLP with seed 0" in comparison.build("x", under(settings, [other])).facts

    def test_the_training_samples_of_a_client_are_told(self, result, settings):
        same = result("kt_pfl", 0.8, 0.9)
        assert not [fact for fact in comparison.build("x", under(settings, [same])).facts if "training samples" in fact]
        runs = [
            replace(run, samples={"train": sizes}) for run, sizes in zip(same.runs, ([18, 35], [20, 1200]), strict=True)
        ]
        facts = comparison.build("x", under(settings, [replace(same, runs=runs)])).facts
        assert "18 to 1,200 training samples per client" in facts

    def test_adversaries_are_named_where_there_are_some(self, prose, result, settings):
        given = {**settings, "adversaries": {"share": 0.1, "kind": "reversed"}}
        (honest,) = results = under(given, [result("kt_pfl", 0.8)])
        fact = str(comparison.build("x", results).facts)
        assert "10 % of the clients are malicious and upload reversed" in fact and "means are over the others" in fact
        lying = replace(honest, runs=[replace(run, adversaries=[1]) for run in honest.runs])
        built = comparison.build("x", Comparison([lying]))
        (section,) = (each for each in built.sections if each.title == "Accuracy by client")
        assert "Malicious clients are shown" in prose(section.blocks[0].caption)
        none = {**settings, "adversaries": {"share": 0.0, "kind": "random"}}
        assert "alicious" not in comparison.build("x", under(none, [result("kt_pfl", 0.8)])).markdown


class TestLengthOfTraining:
    """Local-only over five evaluations, one seed."""

    def told(self, run, settings, *means):
        results = [summarize([run(name, 0, [(mean, mean) for mean in means])], {}) for name in ("kt_pfl", "local")]
        with blank.blank_figures():
            return comparison.build("x", under(settings, results))

    def test_a_rise_is_told_with_its_size(self, prose, run, settings):
        made = self.told(run, settings, 0.5, 0.52, 0.53, 0.55, 0.57)
        (notes,) = (each.blocks[1] for each in made.sections if each.title == "Accuracy")
        said = prose(notes.entries["Length of training"])
        assert said.startswith("Local-only still improves") and "1 to 5" in said
        assert "last 2 of their evaluations is 5.0 percentage points above the mean of the first 2" in said
        assert said in made.markdown
        assert said in " ".join(made.console.split())

    def test_nothing_where_it_is_flat(self, run, settings):
        made = self.told(run, settings, 0.57, 0.57, 0.575, 0.57, 0.57)
        assert "still improves" not in made.markdown + made.console
