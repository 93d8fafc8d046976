"""Figures of matrices: knowledge coefficients after the last round and over the rounds, and confusion matrices."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ktpfl_pipeline.analysis.matrix import attention
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import mean_by_place
from ktpfl_pipeline.data.partition import label_similarity
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.figures.accuracy import title_in
from ktpfl_pipeline.reports.figures.base import WIDTH, styled
from ktpfl_pipeline.reports.style import BLUE, GREEN, MUTED, NAMED, ON_DARK, ON_LIGHT, VERMILION

ATTENTION = {
    "own": ("the client itself", BLUE),
    "alike": ("similar clients", GREEN),
    "others": ("other clients", VERMILION),
}
"""Groups of `analysis.matrix.attention` with their titles and colors."""
BESIDE: Any = {"shrink": 0.85, "aspect": 14, "pad": 0.02, "label": "weight,\nsquare-root scale"}
"""The scale of weights at the right of panels."""
BELOW: Any = {"orientation": "horizontal", "aspect": 34, "pad": 0.05}
"""A scale below its panel."""
MOST = 30
"""The largest number of classes for which an axis names all classes."""
WRITTEN = 6
"""The largest number of classes for which the cells contain their shares as text."""


@styled
def coefficient_heatmaps(result: MethodResult) -> Figure:
    """Draw the coefficient matrix after the last round of the first seed, and the similarity of the clients' labels.

    Row = student, column = teacher. In both matrices, clients are in the order of `_by_labels`. If only the clients
    know their labels, only the coefficient matrix is drawn. Raises ValueError if the method has no coefficient matrix.
    """
    run = result.runs[0]
    if run.coefficients is None:
        raise ValueError(f"{result.title} has no coefficient matrix to draw.")
    order = _by_labels(run.label_counts)
    learned = _ordered(run.coefficients, order)
    n, names = len(order), [_title(result, client) for client in order]
    figure = base.blank(0.5 * WIDTH + 0.5)
    left, *right = figure.subplots(1, 1 + run.labels_known, squeeze=False)[0]
    size = min(8.0, max(4.0, 0.62 * 72 * 0.36 * WIDTH / n))
    drawn: list[tuple[Axes, Any, Normalize, str, str]] = [
        (left, learned, _weights([learned]), f"Coefficients of {result.title}", "teacher's weight, square-root scale")
    ]
    for axes in right:
        similar = _ordered(label_similarity(torch.tensor(run.label_counts)).numpy(), order)
        drawn.append((axes, similar, Normalize(0, 1), "Similarity of label distributions", "cosine similarity"))
        axes.set(xlabel="Client")
    for axes, matrix, norm, title, scale in drawn:
        image = _heatmap(axes, matrix, norm)
        axes.set_title(title)
        if n <= NAMED:
            axes.set_xticks(range(n), names, fontsize=size, rotation=90)
            axes.set_yticks(range(n), names if axes is left else [""] * n, fontsize=size)  # the rows are the same
            axes.tick_params(length=0, pad=2)
        bar = base.color_bar(figure, image, axes, shrink=0.9 if right else 0.5, label=scale, **BELOW)
        bar.locator = MaxNLocator(5)
        if axes is left:
            bar.ax.axvline(1 / n, color=VERMILION, linewidth=1.5)
            mark = bar.ax.text(1 / n, 1.15, "1/N", color=VERMILION, fontsize=7, ha="center")
            mark.set(transform=bar.ax.get_xaxis_transform(), in_layout=False)  # else this bar sits lower than the other
    left.set(xlabel="Teacher", ylabel="Student")
    return figure


def _title(result: MethodResult, client: int) -> str:
    """Return a client's name, or its title in other figures if the name is a number, and its most frequent classes."""
    run = result.runs[0]
    name = "".join(run.names[client : client + 1])
    title = title_in(run, client) if name.isdecimal() or not name else base.shortened(name)
    counts = run.label_counts[client]
    frequent = sorted(range(len(counts)), key=lambda label: (-counts[label], label))[:2]  # the matrix is in their order
    classes = ", ".join(str(label) for label in sorted(frequent) if counts[label])
    return f"{title} ({classes})" if run.labels_known else title


@styled
def coefficient_panels(results: Sequence[MethodResult]) -> Figure:
    """Draw the matrices of several methods as in `coefficient_heatmaps`, four per row, on one color scale."""
    order = _by_labels(results[0].runs[0].label_counts)
    matrices = [_ordered(result.runs[0].coefficients, order) for result in results]
    figure, panels = base.grid_of_panels([result.title for result in results], 4, 0.23 * WIDTH + 0.35, 18)
    images = [_heatmap(axes, matrix, _weights(matrices)) for axes, matrix in zip(panels, matrices, strict=True)]
    panels[0].set(xlabel="Teacher", ylabel="Student")
    base.color_bar(figure, images[0], panels, **BESIDE)
    return figure


@styled
def matrix_over_rounds(result: MethodResult) -> Figure:
    """Draw the change of the coefficient matrix: above, matrices of the first seed; below, weights by group.

    The lower half shows the weights of the groups of `ATTENTION` by round, averaged over students, with the range over
    seeds. Dotted lines are the weights of a matrix of 1/N. The lines end at the last round that all seeds have; with
    early stopping, a seed ends at its best round. If only the clients know their labels, there are no groups. Raises
    ValueError if the runs kept no matrices.
    """
    run = result.runs[0]
    if not run.matrices:
        raise ValueError(f"{result.title} kept no coefficient matrices by round.")
    order = _by_labels(run.label_counts)
    known = all(each.attention for each in result.runs)
    places = max(4, len(run.matrices))
    heights = [0.8 * WIDTH / places, *[0.25 * WIDTH] * known]
    figure = base.blank(sum(heights) + 0.8 * len(heights))
    above, *below = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    matrices = {t: _ordered(matrix, order) for t, matrix in sorted(run.matrices.items())}
    grid = above.add_gridspec(1, places)
    panels = [above.add_subplot(grid[0, place]) for place in range(len(matrices))]
    for axes, (t, matrix) in zip(panels, matrices.items(), strict=True):
        image = _heatmap(axes, matrix, _weights(matrices.values()))
        axes.set_title(f"Round {t}")
    panels[0].set(xlabel="Teacher", ylabel="Student")
    base.color_bar(above, image, panels, **BESIDE)
    if known:
        _attention(below[0].subplots(), result)
    return figure


def _attention(axes: Axes, result: MethodResult) -> None:
    """Draw the lower half of `matrix_over_rounds`."""
    by_run = [even_attention(run.label_counts, run.adversaries) for run in result.runs]
    ends = []
    for group, (name, color) in ATTENTION.items():
        even = fmean(one[group] for one in by_run)
        if not even:  # no clients are alike, or all are
            continue
        whole = [run.attention[group] for run in result.runs]
        rounds = range(1, min(map(len, whole)) + 1)
        by_seed = [weights[: len(rounds)] for weights in whole]
        means = mean_by_place(by_seed)
        axes.plot(rounds, means, color=color, linewidth=2, label=name, marker="o" if len(rounds) < 4 else "")
        base.band(axes, rounds, by_seed, color)
        axes.axhline(even, color=color, linewidth=0.9, linestyle=":")
        ends.append((name, color, float(rounds[-1]), means[-1]))
    axes.set(xlabel="Round", ylim=(-0.02, 1.02))
    axes.margins(x=0.01)
    base.rounds_across(axes)
    handles: dict[str, Any] = {
        "learned": Line2D([], [], color=MUTED, linewidth=2),
        "if all weights were 1/N": Line2D([], [], color=MUTED, linewidth=0.9, linestyle=":"),
    }
    handles |= base.range_of(len(result.runs))
    base.head(axes, "Weights of a row, mean over the students", handles)
    base.label_ends(axes, ends)


def even_attention(label_counts: Sequence[Sequence[int]], adversaries: Sequence[int] = ()) -> dict[str, float]:
    """Return the result of `analysis.matrix.attention` for a matrix whose entries are all 1/N."""
    n = len(label_counts)
    even = torch.full((1, n, n), 1.0 / n, dtype=torch.float64)
    by_group = attention(even, label_similarity(torch.tensor(label_counts)), adversaries)
    return {group: by_round[0] for group, by_round in by_group.items()}


@styled
def confusion_matrices(results: Sequence[MethodResult]) -> Figure:
    """Draw the confusion matrix of each method, over all its runs, one panel per method.

    Row = true class, column = predicted class. A cell is the share of the test samples of the true class. Raises
    ValueError if a method has no confusion matrix.
    """
    if any(not run.confusion for result in results for run in result.runs):
        raise ValueError("A method without a confusion matrix cannot be drawn.")
    across = min(3, max(2, len(results))) if len(results) <= 6 else 4
    titles = [result.title for result in results]
    names = results[0].runs[0].classes
    short = [base.shortened(name, 14) for name in names]
    size: Any = min(7.5, 90 / len(names))
    longest = max(map(len, short)) if len(names) <= MOST else 0
    below = 0.6 * size / 72 * longest if longest > 2 else 0.0  # the height of names that are turned
    figure, panels = base.grid_of_panels(titles, across, WIDTH / across + 0.4 + below, 60 // across)
    for n, (axes, result) in enumerate(zip(panels, results, strict=True)):
        counts = np.sum([run.confusion for run in result.runs], axis=0)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        image = _heatmap(axes, shares, Normalize(0, 1))
        axes.tick_params(length=0)
        if len(names) <= MOST:
            axes.set_xticks(range(len(names)), short, rotation=90 if longest > 2 else 0, fontsize=size)
            axes.set_yticks(range(len(names)), short if n % across == 0 else [""] * len(names), fontsize=size)
        for row, column in np.ndindex(*shares.shape) if len(names) <= WRITTEN else ():
            shade = ON_DARK if shares[row, column] > 0.6 else ON_LIGHT
            written = f"{100 * shares[row, column]:.0f}"
            axes.text(column, row, written, ha="center", va="center", fontsize=7, color=shade)
    panels[0].set(xlabel="Predicted class", ylabel="True class")
    place: Any = {"shrink": 0.7, "aspect": 24, "pad": 0.02}
    base.color_bar(figure, image, panels[:across], label="share of a class's test samples", **place)
    return figure


def _heatmap(axes: Axes, matrix: Any, norm: Normalize) -> Any:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes.imshow(matrix, cmap="Blues", norm=norm, interpolation="nearest")


def _weights(matrices: Iterable[Any]) -> PowerNorm:
    """Return the color scale for matrices of weights, (N, N) each: from 0 to the largest weight, at least to 2/N."""
    matrices = list(matrices)
    return PowerNorm(0.5, vmin=0, vmax=min(1.0, max(2 / len(matrices[0]), *(float(each.max()) for each in matrices))))


def _by_labels(label_counts: Sequence[Sequence[int]]) -> Any:
    """Return the clients ordered by their two most frequent labels, so that clients with similar data are neighbors."""
    counts = np.array(label_counts)
    return np.lexsort((*np.sort(np.argsort(-counts, axis=1, kind="stable")[:, :2], axis=1).T[::-1],))


def _ordered(matrix: Any, order: Any) -> Any:
    return np.array(matrix)[np.ix_(order, order)]
