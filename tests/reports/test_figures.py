import re
import warnings
from dataclasses import replace
from itertools import pairwise

import blank
import matplotlib as mpl
import numpy as np
import pytest
from cases import case
from finished_runs import under
from matplotlib._pylab_helpers import Gcf
from matplotlib.text import Text

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.core.metrics import LEDGERS
from ktpfl_pipeline.methods import METHODS, compared
from ktpfl_pipeline.reports import figures, style, words
from ktpfl_pipeline.reports.figures.base import apart, saved, svg, svg_file, svg_on_page
from ktpfl_pipeline.reports.figures.matrix import even_attention
from ktpfl_pipeline.reports.figures.traffic import frontier


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def line(axes, **wanted):
    """Return the one line with these properties."""
    (found,) = [
        each
        for each in axes.get_lines()
        if all(getattr(each, f"get_{name}")() == value for name, value in wanted.items())
    ]
    return found


@pytest.fixture
def blank_figures():
    """Draw no figure, but give axes and labels their places."""
    with blank.blank_figures(placed=True):
        yield


@pytest.fixture(scope="module")
def drawn(study):
    return figures.accuracy_curves(study)


@pytest.fixture(scope="module")
def many(run):
    """The longest comparison there is, two seeds, three rounds, each method a little better than the one before."""
    return [
        summarize(
            [
                run(
                    method,
                    seed,
                    [(0.4 + place / 100 + seed / 50 + t / 10,) * 2 for t in range(3)],
                    [(0.3 + place / 100 + t / 10,) * 2 for t in range(3)],
                )
                for seed in (0, 1)
            ],
            {},
        )
        for place, method in enumerate(("local", *compared(one_architecture=False)[:-1]))
    ]


class TestManyMethods:
    @pytest.fixture(scope="class")
    def curves(self, many):
        return figures.accuracy_curves(many)

    def test_subject_local_only_and_the_best_are_brought_out(self, many, curves):
        (axes,) = curves.axes
        best, solid = many[-1], [each for each in axes.get_lines() if each.get_linestyle() == "-"]
        assert len(solid) == len(many) > 20
        assert {each.get_label() for each in solid if each.get_linewidth() == 2} == {"KT-pFL", "Local-only", best.title}
        colors = {style.BLUE, style.NEUTRAL, style.look(best.method).color}
        assert {each.get_color() for each in solid} == {*colors, style.GRAY}
        assert {each.get_color() for each in axes.get_lines() if each.get_linestyle() == "--"} == colors
        assert len(axes.collections) == 3  # their bands

    def test_every_part_of_a_method_ends_in_its_place(self, many, curves):
        parts = re.findall(r' id="accuracy-(\w+)--(\d+)"', svg(curves, "accuracy"))
        assert len(set(parts)) == len(parts)
        assert {place for part, place in parts if part == "line"} == set(map(str, range(len(many))))
        assert {part for part, place in parts if place == "0"} <= {"line", "band", "before", "name", "leader"}

    def test_names_stand_outside_in_the_order_of_the_lines(self, many, curves):
        axes = curves.axes[0]
        boxes = {text.get_text(): mpl.text.Text.get_window_extent(text) for text in axes.texts}
        by_height = sorted(boxes, key=lambda name: boxes[name].y0)
        assert by_height == [result.title for result in many]  # from the lowest line to the highest
        assert all(boxes[upper].y0 > boxes[lower].y1 for lower, upper in pairwise(by_height))
        frame = axes.get_window_extent()
        assert all(box.x0 > frame.x1 and frame.y0 - 8 < box.y0 and box.y1 < frame.y1 + 8 for box in boxes.values())

    @pytest.mark.usefixtures("blank_figures")
    def test_markers_do_not_stand_at_one_place(self, many):
        lines = figures.accuracy_panels({"": many}).axes[0].get_lines()
        assert {each.get_marker() for each in lines} >= {"o", "s", "v", "^", "D", "X"}
        assert all(each.get_markevery()[-1] == 2 for each in lines if each.get_linestyle() == "-")

    @pytest.mark.usefixtures("blank_figures")
    def test_spread_fits_the_page_on_one_axis(self, many):
        figure = figures.spread_over_clients(many)
        assert figure.get_figheight() <= 14
        (low, high) = {axes.get_ylim() for axes in figure.axes if axes.get_visible()}.pop()
        assert (0.4 < low <= 0.5, high > 0.7) == (True, True)

    @pytest.mark.usefixtures("blank_figures")
    def test_each_client_has_three_markers_and_grey_ticks(self, many):
        (axes,) = figures.client_accuracy(many).axes
        assert sum(each.get_marker() == "|" for each in axes.get_lines()) == len(many) - 3
        shown = [text.get_text() for text in axes.get_legend().get_texts()]
        assert sorted(shown) == sorted(["KT-pFL", "Local-only", many[-1].title, "the other methods"])


@pytest.mark.usefixtures("blank_figures")
def test_of_each_panel_the_subject_and_local_only_are_thick(study):
    """KT-pFL is the best of the three, and without local-only is the only other one."""
    asked = under({"subject": "fedmd"}, study)
    for shown, thick in (
        (study, {"KT-pFL", "Local-only"}),
        (asked, {"FedMD", "Local-only"}),
        (asked.results[:2], {"FedMD"}),
    ):
        (axes,) = figures.accuracy_panels({"": shown}).axes
        assert {each.get_label() for each in axes.get_lines() if each.get_linewidth() == 2} == thick


class TestAccuracyCurves:
    def test_solid_dashed_band_and_names(self, drawn):
        (axes,) = drawn.axes
        solid = line(axes, color=style.BLUE, linestyle="-")
        assert list(solid.get_ydata()) == pytest.approx([0.90])
        assert list(line(axes, color=style.BLUE, linestyle="--").get_ydata()) == pytest.approx([0.91])
        bands = [band.get_paths()[0].get_extents() for band in axes.collections]
        assert (bands[0].y0, bands[0].y1) == pytest.approx((0.89, 0.91))
        assert len(bands) == 3
        assert sorted(texts(drawn)) == ["FedMD", "KT-pFL", "Local-only"]
        legend = [text.get_text() for text in axes.get_legend().get_texts()]
        assert legend == ["after transfer", "after local training", "range over 3 seeds"]
        assert axes.yaxis.get_major_formatter()(0.875) == "87.5 %"

    def test_local_only_has_one_line(self, drawn):
        (axes,) = drawn.axes
        assert len(line(axes, color=style.NEUTRAL).get_ydata()) == 1  # fails if there are two lines

    @pytest.mark.usefixtures("blank_figures")
    def test_one_seed_has_no_band(self, result):
        (axes,) = figures.accuracy_curves([result("kt_pfl", 0.9)]).axes
        assert len(axes.collections) == 0
        assert "seed" not in str([text.get_text() for text in axes.get_legend().get_texts()])

    @pytest.mark.usefixtures("blank_figures")
    def test_rounds_without_evaluation(self, run):
        rounds = [None, (0.2, 0.4), None, (0.4, 0.8)]
        (axes,) = figures.accuracy_curves([summarize([run(after_transfer=rounds)], {})]).axes
        assert list(line(axes, color=style.BLUE).get_xdata()) == [2, 4]

    def test_names_do_not_overlap(self, run):
        results = [
            summarize([run(method, after_transfer=[(0.5 + i / 1000,)])], {})
            for i, method in enumerate(list(METHODS)[:4])
        ]
        figure = figures.accuracy_curves([*results, summarize([run("local", after_transfer=[(0.9,)])], {})])
        boxes = [mpl.text.Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the leaders
        boxes.sort(key=lambda box: box.y0)
        assert all(upper.y0 > lower.y1 for lower, upper in pairwise(boxes))


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize(
    ("joined", "begin", "told"),
    [(1, 3, "mean of the last five evaluations"), (6, 6, "mean of the last two evaluations"), (7, 6.5, "evaluation;")],
    ids=["five", "two", "one"],
)
def test_the_rounds_of_the_final_value_are_those_that_counted(prose, run, joined, begin, told):
    """The second of two clients takes part from a round on; seven are evaluated."""
    finished = run(after_transfer=[(0.5, 0.7)] * 7)
    history = [replace(each, cohort=[0] if each.round < joined else [0, 1]) for each in finished.history]
    results = [summarize([replace(finished, history=history)], {})]
    (shade,) = (patch for axes in figures.accuracy_curves(results).axes for patch in axes.patches)
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == (begin, 7)
    assert told in prose(words.averaged(1, results))


@pytest.mark.usefixtures("blank_figures")
def test_with_early_stopping_no_range_of_rounds_is_the_final_value(run):
    rounds = run(after_transfer=[(0.5, 0.7)] * 3).history
    validated = [
        replace(each, accuracy={**each.accuracy, "validation": [best, best]})
        for each, best in zip(rounds, (0.5, 0.7, 0.6), strict=True)
    ]
    stopped = replace(run(), history=validated, patience=1)
    assert [record.round for record in stopped.counted] == [2]
    (axes,) = figures.accuracy_curves([summarize([stopped], {})]).axes
    assert list(axes.patches) == []


@pytest.mark.usefixtures("blank_figures")
def test_the_rounds_of_the_final_value_end_with_the_longest_curve(run):
    long, short = (summarize([run(name, after_transfer=[(0.5, 0.7)] * n)], {}) for name, n in (("fedmd", 9), ("fd", 7)))
    (shade,) = figures.accuracy_curves([long, short]).axes[0].patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == (3, 9)


def test_how_many_evaluations_counted_is_told_of_all_runs(prose, run):
    results = [summarize([run(after_transfer=[(0.5, 0.7)] * rounds)], {}) for rounds in (2, 4, 3)]
    assert "last two to four evaluations" in prose(words.averaged(1, results), "runs")
    assert "last evaluations, at most five, then over seeds" in prose(words.averaged(None), "comparisons")


def test_apart():
    assert apart([0.0, 5.0], 1.0, -9, 9) == [0.0, 5.0]
    assert apart([1.0, 1.0], 1.0, -9, 9) == [0.5, 1.5]
    assert apart([0.0, 0.0, 0.0, 10.0], 2.0, -9, 19) == [-2.0, 0.0, 2.0, 10.0]
    assert apart([0.0, 0.0, 9.0, 9.0], 2.0, 0, 9) == [0.0, 2.0, 7.0, 9.0]


@pytest.mark.usefixtures("blank_figures")
class TestSpreadOverClients:
    def test_lines_are_clients_and_the_band_their_middle_half(self, run):
        rounds = [(0.1, 0.2, 0.3, 0.4, 0.5), (0.5, 0.6, 0.7, 0.8, 0.9)]
        results = [summarize([run(method, after_transfer=rounds)], {}) for method in ("kt_pfl", "local")]
        figure = figures.spread_over_clients(results)
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["KT-pFL", "Local-only"]
        *clients, mean = figure.axes[0].get_lines()
        assert [list(line.get_ydata()) for line in clients] == [
            [0.1, 0.5],
            [0.2, 0.6],
            [0.3, 0.7],
            [0.4, 0.8],
            [0.5, 0.9],
        ]
        assert np.allclose(mean.get_ydata(), [0.3, 0.7])
        band = figure.axes[0].collections[0].get_paths()[0].vertices
        assert {0.2, 0.4, 0.6, 0.8} == set(np.round(band[:, 1], 9))

    def test_the_mean_is_without_adversaries(self, run):
        honest = replace(run(after_transfer=[(0.1, 0.2, 0.9), (0.5, 0.6, 0.9)]), adversaries=[2])
        *clients, mean = figures.spread_over_clients([summarize([honest], {})]).axes[0].get_lines()
        assert len(clients) == 3
        assert np.allclose(mean.get_ydata(), [0.15, 0.55])

    def test_seeds_are_averaged_for_each_client(self, run):
        runs = [run(seed=seed, after_transfer=[(0.2 + seed / 10, 0.6)]) for seed in (0, 1, 2)]
        first, second, _ = figures.spread_over_clients([summarize(runs, {})]).axes[0].get_lines()
        assert np.allclose([first.get_ydata(), second.get_ydata()], [[0.3], [0.6]])


@pytest.mark.usefixtures("blank_figures")
class TestClientAccuracy:
    def test_rows_are_sorted_by_gain_over_local_only(self, run):
        results = [
            summarize([run("kt_pfl", after_transfer=[(0.80, 0.90, 0.70)])], {}),
            summarize([run("local", after_transfer=[(0.82, 0.80, 0.70)])], {}),
        ]
        figure = figures.client_accuracy(results)
        (axes,) = figure.axes
        assert [label.get_text() for label in axes.get_yticklabels()] == ["MLP 1", "LeNet 2", "LeNet 0"]
        assert list(line(axes, label="KT-pFL").get_xdata()) == [0.90, 0.70, 0.80]
        assert list(line(axes, label="Local-only").get_xdata()) == [0.80, 0.70, 0.82]
        assert texts(figure) == ["+10.0", "0.0", "−2.0", "KT-pFL −\nLocal-only"]
        assert axes.yaxis_inverted()

    def test_without_local_only(self, study):
        figure = figures.client_accuracy(study[:2])
        assert texts(figure) == []
        assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["KT-pFL", "FedMD"]

    def test_many_clients_are_not_named(self, run):
        accuracies = [tuple(np.linspace(0.5, 0.9, 100))]
        results = [summarize([run(method, after_transfer=accuracies)], {}) for method in ("kt_pfl", "local")]
        (axes,) = figures.client_accuracy(results).axes
        assert len(axes.get_yticks()) == 0
        assert axes.get_ylabel() == "100 clients, largest gain at the top"


class TestHeatmaps:
    @pytest.fixture(scope="class")
    def figure(self, run):
        coefficients = [[0.6, 0.1, 0.3], [0.1, 0.8, 0.1], [0.35, 0.05, 0.6]]
        counts = [[0, 5, 5], [9, 1, 0], [0, 5, 5]]  # clients 0 and 2 are alike: 1 comes first, by its labels 0 and 1
        finished = run(after_transfer=[(0.5, 0.6, 0.7)], coefficients=coefficients, label_counts=counts)
        return figures.coefficient_heatmaps(summarize([finished], {}))

    def test_both_in_the_same_order(self, figure):
        learned, similar = (np.asarray(axes.images[0].get_array()) for axes in figure.axes[:2])
        assert np.allclose(learned, [[0.8, 0.1, 0.1], [0.1, 0.6, 0.3], [0.05, 0.35, 0.6]])
        alike = 5 / (82**0.5 * 50**0.5)
        assert np.allclose(similar, [[1, alike, alike], [alike, 1, 1], [alike, 1, 1]])

    def test_labels(self, figure):
        left, right, *bars = figure.axes
        assert (left.get_ylabel(), left.get_xlabel()) == ("Student", "Teacher")
        clients = ["MLP 1 (0, 1)", "LeNet 0 (1, 2)", "LeNet 2 (1, 2)"]  # with the classes by which they are ordered
        assert [label.get_text() for label in left.get_yticklabels()] == clients
        for axes in (left, right):
            assert [label.get_text() for label in axes.get_xticklabels()] == clients
        assert len(bars) == 2
        assert texts(figure) == ["1/N"]

    @pytest.mark.usefixtures("blank_figures")
    def test_equal_weights_are_half_way(self, run):
        finished = run(coefficients=[[0.5, 0.5], [0.5, 0.5]])
        image = figures.coefficient_heatmaps(summarize([finished], {})).axes[0].images[0]
        assert image.norm(0.5) == pytest.approx(0.5**0.5)

    def test_without_a_matrix(self, study):
        with pytest.raises(ValueError, match="FedMD has no coefficient matrix"):
            figures.coefficient_heatmaps(study[1])


def test_confusion_matrices_with_long_names_fit_their_figure(run):
    names, one = [f"a long name {n}" for n in range(6)], run("kt_pfl", 0, [(0.5, 0.5)])
    shown = replace(one, confusion=np.eye(6, dtype=int).tolist(), class_names=names)
    figure = figures.confusion_matrices([summarize([shown], {})] * 3)
    figure.draw_without_rendering()
    boxes = [part.get_window_extent() for axes in figure.axes for part in (axes.title, axes.xaxis.label)]
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.height for box in boxes)


class TestCoefficientPanels:
    def test_on_one_scale_in_the_order_of_the_labels(self, run):
        matrices = ([[0.6, 0.4], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]])
        counts = [[0, 2, 2], [3, 1, 0]]  # client 1 comes first, by its labels 0 and 1
        results = [
            summarize([run(method, coefficients=matrix, label_counts=counts)], {})
            for method, matrix in zip(("sim_pfl", "comet"), matrices, strict=True)
        ]
        figure = figures.coefficient_panels(results)
        first, second = (axes.images[0] for axes in figure.axes[:2])
        assert np.allclose(first.get_array(), [[0.9, 0.1], [0.4, 0.6]])
        assert first.norm.vmax == second.norm.vmax == 1.0
        assert [axes.get_visible() for axes in figure.axes[:4]] == [True, True, False, False]


class TestMatrixOverRounds:
    def test_snapshots_and_attention(self, whole):
        figure = figures.matrix_over_rounds(whole)
        first, last, below, bar = sorted(figure.axes, key=lambda axes: (not axes.images, not axes.texts))
        assert (first.get_title(loc="left"), last.get_title(loc="left")) == ("Round 1", "Round 3")
        assert np.allclose(first.images[0].get_array(), [[0.9, 0.1], [0.2, 0.8]])
        assert np.allclose(last.images[0].get_array(), [[0.6, 0.4], [0.3, 0.7]])
        assert bar.get_ylabel() == "weight,\nsquare-root scale"
        own = line(below, label="the client itself")
        assert list(own.get_xdata()) == [1, 2, 3]
        assert np.allclose(own.get_ydata(), [0.8, 0.7, 0.6])  # mean over two seeds
        assert np.allclose(line(below, label="other clients").get_ydata(), [0.2, 0.3, 0.4])
        band = below.collections[0].get_paths()[0].get_extents()
        assert (band.y0, band.y1) == pytest.approx((0.55, 0.85))
        assert sorted(texts(figure)) == ["other clients", "the client itself"]  # nobody is alike: labels 0, 1 and 1, 2

    def test_seeds_that_stopped_early_are_drawn_as_far_as_all_go(self, whole):
        """The second seed's best round is the second of three."""
        first, second = whole.runs
        shorter = {group: weights[:2] for group, weights in second.attention.items()}
        result = replace(whole, runs=[first, replace(second, attention=shorter)])
        own = next(
            found
            for axes in figures.matrix_over_rounds(result).axes
            for found in axes.lines
            if found.get_label() == "the client itself"
        )
        assert list(own.get_xdata()) == [1, 2]
        assert np.allclose(own.get_ydata(), [0.8, 0.7])

    def test_dotted_is_what_equal_weights_give(self, run):
        """Four clients, each with one that has the same labels."""
        counts = [[4, 0], [4, 0], [0, 4], [0, 4]]
        assert even_attention(counts) == {"own": 0.25, "alike": 0.25, "others": 0.5}

    def test_without_matrices(self, study):
        with pytest.raises(ValueError, match="KT-pFL kept no coefficient matrices"):
            figures.matrix_over_rounds(study[0])


class TestTheorem:
    def test_bound_across_and_loss_upward(self, whole):
        """Two clients in two seeds; on the fitted half the bounds are 0.25 and 1, then 0.25 and min(2, 1.5)."""
        left, right = figures.theorem(whole).axes
        fitted = line(left, label="fitted mixture")
        assert list(fitted.get_xdata()) == [0.25, 1.0, 0.25, 1.5]
        assert list(fitted.get_ydata()) == [0.25, 0.75, 0.25, 1.5]
        assert list(line(left, label="learned coefficients").get_ydata()) == [1.0] * 4
        other = line(right, label="fitted mixture")
        assert (list(other.get_xdata()), list(other.get_ydata())) == ([0.5, 1.0] * 2, [0.5, 1.25] * 2)
        assert left.get_xlim() == left.get_ylim() == right.get_xlim()
        assert left.get_xlim()[1] > 1.5

    def test_without_a_check(self, study):
        with pytest.raises(ValueError, match="Theorem 1 was not checked for KT-pFL"):
            figures.theorem(study[0])


@pytest.mark.usefixtures("blank_figures")
class TestDifferences:
    def test_the_highest_is_above_and_its_numbers_beside(self, result):
        """KT-pFL +4, +1, +1: as one of two, none of which is decided, 2 ± 6.205 · 1.732 / √3; FedMD +4, -3, -1."""
        names = {"fedmd": (0.84, 0.78, 0.79), "kt_pfl": (0.84, 0.82, 0.81), "local": (0.8, 0.81, 0.8)}
        results = [result(name, *means) for name, means in names.items()]
        (axes,) = figures.differences(results).axes
        found = texts(axes.figure)
        assert found[:3] == ["not significant", "+2.0 [−4.2, +8.2]", "KT-pFL"]
        assert found[3::2] == ["not significant", "FedMD"]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["not significant (2)"]
        assert axes.yaxis_inverted()
        said = [text.get_text() for text in axes.figure.findobj(Text)]
        assert "Difference to local-only, Holm-corrected" in said

    def test_the_interval_decides(self, result):
        results = [result("kt_pfl", *[0.9] * 3), result("fedmd", *[0.7] * 3), result("local", *[0.8] * 3)]
        found = texts(figures.differences(results))
        assert [text for text in found if text in ("better", "worse")] == ["better", "worse"]

    def test_one_far_away_stands_at_the_edge(self, result):
        names = ("kt_pfl", "fedmd", "sim_pfl", "topk_pfl")
        near = [result(name, 0.81, 0.82, 0.815) for name in names]
        results = [*near, result("feddf", 0.1, 0.1, 0.1), result("local", 0.8, 0.8, 0.8)]
        (axes,) = figures.differences(results).axes
        (edge,) = (line for line in axes.get_lines() if line.get_marker() == "<")
        assert edge.get_xdata()[0] == axes.get_xlim()[0] > -0.6
        assert any(text.startswith("−70.0") for text in texts(axes.figure))

    @pytest.mark.parametrize("seeds", [1, 2])
    def test_too_few_seeds_have_no_interval_in_row_and_title(self, result, seeds):
        results = [result("kt_pfl", *[0.9] * seeds), result("local", *[0.8] * seeds)]
        figure = figures.differences(results)
        assert {"no interval", "+10.0"} <= {*texts(figure)}
        assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["no interval (1)"]
        said = [text.get_text().replace("\n", " ") for text in figure.findobj(Text)]
        (title,) = (text for text in said if text.startswith("Difference to local-only"))
        assert f", {seeds} seed" in title and title.endswith("an interval needs at least 3")

    def test_no_text_covers_another_also_with_long_titles(self, result):
        names = ("kt_pfl_paper_literal", "per_fedavg_hf", "local_matched", "local")
        with blank.blank_figures(placed=True):
            (axes,) = figures.differences([result(name, 0.8, 0.82, 0.83 + n) for n, name in enumerate(names)]).axes
        boxes = [note.get_window_extent() for note in axes.texts]
        assert len(boxes) == 9
        assert not any(one.overlaps(other) for n, one in enumerate(boxes) for other in boxes[n + 1 :])
        assert all(box.x0 >= 0 and box.x1 <= axes.figure.bbox.width for box in boxes)

    def test_without_local_only(self, study):
        with pytest.raises(ValueError, match="need local-only"):
            figures.differences(study[:2])


@pytest.mark.usefixtures("blank_figures")
class TestTraffic:
    @pytest.fixture
    def three(self, run):
        """Local-only 60 % for nothing, FedMD 70 % for 2 MB, KT-pFL 50 % for 6 MB."""
        made = {"local": (0.6, 0), "fedmd": (0.7, 1_000_000), "kt_pfl": (0.5, 3_000_000)}
        return [summarize([run(name, 0, [(a, a)], knowledge=sent)], {}) for name, (a, sent) in made.items()]

    def test_accuracy_upward_and_megabytes_across(self, three):
        (axes,) = figures.accuracy_by_traffic(three).axes
        assert list(line(axes, marker="X").get_xydata()[0]) == [2.0, 0.7]
        assert list(line(axes, color=style.BLUE).get_xydata()[0]) == [6.0, 0.5]
        assert sorted(texts(axes.figure)) == ["FedMD, 2.00", "KT-pFL, 6.00"]
        assert axes.get_xscale() == "log"
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Local-only (sends nothing)"]

    def test_traffic_that_differs_little_has_ticks_on_both_sides(self, run):
        made = [
            summarize([run(name, 0, [(0.6, 0.6)], knowledge=sent)], {})
            for name, sent in (("fedmd", 370_000), ("fd", 520_000))
        ]
        (axes,) = figures.accuracy_by_traffic(made).axes
        (low, high), ticks = axes.get_xlim(), axes.get_xticks()
        assert sum(low <= tick <= high for tick in ticks) >= 3

    def test_marks_at_one_place_are_all_seen(self, run):
        """FedMD and Sim-pFL have equal accuracy and traffic; only one of the marks is moved, and sideways only."""
        made = [summarize([run(name, 0, [(0.6, 0.6)])], {}) for name in ("kt_pfl", "fedmd", "sim_pfl")]
        (axes,) = figures.accuracy_by_traffic(made).axes
        marks = [line(axes, marker=style.look(each.method).marker) for each in made]
        assert [mark.get_ydata()[0] for mark in marks] == [0.6] * 3
        across = sorted(axes.transData.transform(mark.get_xydata())[0][0] for mark in marks)
        assert min(b - a for a, b in pairwise(across)) > 3 * axes.figure.dpi / 72
        assert sorted(texts(axes.figure)) == ["FedMD, 2.00", "KT-pFL, 2.00", "Sim-pFL, 2.00"]

    def test_frontier(self, three):
        assert [result.method for result in frontier(three)] == ["local", "fedmd"]

    def test_nothing_is_sent(self, three):
        assert texts(figures.accuracy_by_traffic(three[:1])) == []

    def test_accuracy_against_bytes_of_predictions_at_each_value(self, run):
        """KT-pFL at two values, with two seeds; local-only sends none."""

        def result(name, sent, *accuracies):
            return summarize([run(name, n, [(a, a)], knowledge=sent) for n, a in enumerate(accuracies)], {})

        local = result("local", 0, 0.6, 0.6)
        points = [
            Comparison([result("kt_pfl", sent, accuracy, accuracy + 0.2), local], value)
            for value, sent, accuracy in (("float32", 4_000_000, 0.7), ({"encoding": "top_k", "k": 1}, 1_000_000, 0.5))
        ]
        figure = figures.accuracy_by_bytes(points)
        (axes,) = figure.axes
        marks = next(each for each in axes.get_lines() if each.get_marker() == "o")
        assert marks.get_xdata() == pytest.approx([8.0, 2.0])
        assert marks.get_ydata() == pytest.approx([0.8, 0.6])
        bars = axes.collections[0].get_segments()
        assert [bar[1][1] - bar[0][1] for bar in bars] == pytest.approx([2 * 0.1 * 2**0.5] * 2)
        assert [note.get_text() for note in axes.texts] == ["top_k k=1", "float32"]
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["KT-pFL", "Local-only (sends none)"]
        assert axes.get_xscale() == "log"
        first = [replace(point, given=point.given[::-1]) for point in points]
        axes = figures.accuracy_by_bytes(first).axes[0]
        marks = next(each for each in axes.get_lines() if each.get_marker() == "o")
        assert marks.get_xdata() == pytest.approx([8.0, 2.0]), "methods that send none do not move the others"
        figures.accuracy_by_bytes([replace(point, given=[local]) for point in points])

    def test_one_panel_a_comparison_and_one_legend(self, three):
        figure = figures.traffic_panels({"a": three, "b": three[:2]})
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "b"]
        assert len(figure.legends[0].get_texts()) == 3


@pytest.mark.usefixtures("blank_figures")
class TestLabels:
    def test_bars_are_stacked(self):
        figure = figures.labels_per_client([[30, 10, 0], [0, 20, 20]], "Images")
        (axes,) = figure.axes
        spans = {(bar.get_x(), bar.get_width()) for bar in axes.patches}
        assert {(0, 30), (30, 10), (0, 20), (20, 20)} <= spans
        assert sorted(texts(figure)) == ["0", "1", "1", "2"]
        assert axes.get_title(loc="left") == "Images"
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["class 0", "1", "2"]
        (named,) = figures.labels_per_client([[30, 10, 0], [0, 20, 20]], "Images", ["LeNet 0", "MLP 1"]).axes
        assert [label.get_text() for label in named.get_yticklabels()] == ["LeNet 0", "MLP 1"]

    def test_any_shape(self):
        for shape in ((1, 1), (2, 20), (100, 10)):
            with case(*shape):
                (axes,) = figures.labels_per_client(np.ones(shape, int).tolist(), "Images").axes
                assert len(axes.patches) == shape[0] * shape[1]


class TestDrawing:
    def test_matplotlibs_settings_stay_and_pyplot_knows_nothing_of_it(self, study):
        with mpl.rc_context():
            mpl.rcdefaults()
            before = dict(mpl.rcParams)
            svg(figures.accuracy_curves(study), "accuracy")
            assert dict(mpl.rcParams) == before
        assert not Gcf.figs

    def test_long_names_leave_room_for_what_is_drawn(self, run):
        """Else the axes collapse to nothing, with a warning. Both ends of a name are shown."""
        names = [f"{'hospital ' * 10}{number}" for number in range(2)]
        finished = replace(run(coefficients=[[0.5, 0.5], [0.5, 0.5]]), names=names)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drawn = [
                figures.client_accuracy([summarize([finished], {})]),
                figures.coefficient_heatmaps(summarize([finished], {})),
                figures.labels_per_client(finished.label_counts, "Labels", names),
            ]
            for figure in drawn:
                saved(figure, "png")
        for figure in drawn:
            shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
            assert any("hospital hospital" in text and "…ospital 1" in text for text in shown), shown

    def test_names_of_clients_are_text(self, run):
        """Dollar signs are no mathematics, and a character that no font has is no error."""
        names = ["a $\\frac{1}$ b", "\u0914\U0001f9ec"]
        finished = replace(run(coefficients=[[0.5, 0.5], [0.5, 0.5]]), names=names)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = figures.client_accuracy([summarize([finished], {})])
            files = [saved(figure, "png"), svg_file(svg(figure, "clients")).encode(), saved(figure, "pdf")]
            saved(figures.coefficient_heatmaps(summarize([finished], {})), "png")
        shown = {label.get_text() for label in figure.axes[0].get_yticklabels()}
        assert any(names[0] in text for text in shown)
        assert [file[:4] for file in files] == [b"\x89PNG", b"<?xm", b"%PDF"]
        assert b"/Type3" not in files[2]
        assert b"/Type42" in files[2] or b"/TrueType" in files[2] or b"/CIDFontType2" in files[2]

    def test_svg(self, study, drawn):
        text = svg_on_page(svg(drawn, "accuracy"))
        assert text.startswith("<svg")
        assert ">Mean accuracy of the clients</text>" in text
        assert "var(--ink)" in text
        assert not re.findall(r": (#[0-9a-f]{6})", text)  # every color depends on the page
        assert f"color-mix(in oklab, {style.look('fedmd').color}, white var(--lift))" in text
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(set(ids)) == len(ids)
        assert all(name.startswith("accuracy-") for name in ids)
        used = re.findall(r'(?:href="#|url\(#)([^")]+)', text)
        assert used
        assert set(used) <= set(ids)
        assert text == svg_on_page(svg(figures.accuracy_curves(study), "accuracy"))


def test_bytes_are_split_by_what_they_are(result):
    """Ledgers of 1, 2, 4, 8 and 16 MB: 16 of data, 4 + 8 of parameters, 1 + 2 of soft predictions."""
    sizes = dict(zip(LEDGERS, (1e6, 2e6, 4e6, 8e6, 16e6), strict=True))
    figure = figures.bytes_panels({"Fashion-MNIST": [replace(result("kt_pfl", 0.9), traffic=sizes)]})
    widths = {bars.get_facecolor(): bars.get_width() for bars in figure.axes[0].patches}
    assert list(widths.values()) == [16.0, 12.0, 3.0]
    assert texts(figure) == ["31.0"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["Data", "Parameters", "Soft predictions"]
