"""The figures of a report.

Figures are matplotlib's objects, made without pyplot and without touching its settings, so they can be drawn anywhere
and saved in any format. Each method keeps its colour and marker in all of them; the colours are told apart with every
common kind of colour blindness (Okabe and Ito's, Tol's for labels).
"""

import io
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from statistics import fmean
from typing import Any, Literal, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ktpfl_pipeline.analysis.matrix import attention
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult, local_only, subject
from ktpfl_pipeline.reports.looks import (
    BLUE,
    INK,
    MUTED,
    NAMED,
    NEUTRAL,
    PAPER,
    RULE,
    architecture_title,
    label_colours,
    look,
)
from ktpfl_pipeline.reports.tables import megabytes, signed, transfer

P = ParamSpec("P")

TOKENS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    NEUTRAL: "var(--neutral)",
    BLUE: "var(--blue)",
}
"""Colours that a page may restyle, for dark mode: `svg` writes them as CSS variables."""

WIDTH = 7.0
"""Inches: a page's width. 3.5, a column's, works too."""
_PERCENT = FuncFormatter(lambda share, _: f"{round(100 * share, 2):g} %")
_STYLE: Any = {  # matplotlib's names
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 8.5,
    "text.color": INK,
    "figure.dpi": 200,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.solid_capstyle": "round",
}


_MARK = "#d55e00"
FEW = 4
"""Methods up to which a figure shows everything of each; with more, only of the emphasised two."""

TRAFFIC = {
    "knowledge_up": BLUE,
    "knowledge_down": "#8fc4e3",
    "parameters_up": "#d55e00",
    "parameters_down": "#f2b08a",
    "public_down": "#b6bcc6",
}
"""Ledgers of traffic and their colours: one hue a kind, light on the way down."""

ATTENTION = {
    "own": ("the client itself", BLUE),
    "alike": ("clients alike", "#009e73"),
    "others": ("other clients", "#d55e00"),
}
"""Groups of `matrix.attention`: what they are called, and their colours."""
THEOREM = {"fitted": ("fitted mixture", BLUE, "o"), "learned": ("learned coefficients", "#d55e00", "D")}
"""Mixtures of `theorem.check` that are compared with the other two: what they are called, colour, marker."""


def _styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with the style of this module, and leave matplotlib's settings as they were."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(_STYLE):
            figure = draw(*args, **kwargs)
            figure.draw_without_rendering()  # ticks are made when first drawn: now, in this style
            return figure

    return styled


@_styled
def accuracy_curves(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw the mean accuracy over clients and seeds by round: solid at the round's end, dashed after local training.

    The band around a solid line is the range over seeds; with one seed there is none. The report's subject and
    local-only are drawn thick. With more than `FEW` methods, dashed lines and bands are drawn for these two alone.
    """
    figure = _figure(width, max(0.3 * width + 1.4, 0.16 * len(results) + 1.7))
    axes = figure.add_subplot()
    ends, seeds, main = [], 1, emphasised(results)
    handles: dict[str, Any] = {}
    for place, result in enumerate(results):
        colour, marker = look(result.method)
        strong = result in main
        rounds, by_seed = result.curve(HEADLINE)
        means = _mean(by_seed)
        dots: dict[str, Any] = {"marker": marker, "markersize": 4, "markeredgecolor": PAPER, "markeredgewidth": 0.4}
        axes.plot(
            rounds,
            means,
            color=colour,
            linewidth=2 if strong else 1,
            label=result.title,
            zorder=4 if strong else 3,
            markevery=_marked(len(rounds), place),
            **dots,
        )
        handles[f"after {transfer(results)}"] = Line2D([], [], color=MUTED, linewidth=2)
        ends.append((result.title, colour, float(rounds[-1]), means[-1]))
        if not strong and len(results) > FEW:
            continue
        if len(by_seed) > 1:
            low, high = (list(map(extreme, zip(*by_seed, strict=True))) for extreme in (min, max))
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        if "after_local" in result.final and result.curve("after_local")[1] != by_seed:
            thin: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (4, 2.5))}
            few: dict[str, Any] = {"marker": "o", "markersize": 4, "markerfacecolor": PAPER} if len(rounds) < 4 else {}
            axes.plot(rounds, _mean(result.curve("after_local")[1]), color=colour, zorder=2, **thin, **few)
            handles["after local training"] = Line2D([], [], color=MUTED, **thin)
        seeds = max(seeds, len(by_seed))
    if seeds > 1:
        handles[f"range over {seeds} seeds"] = Patch(color=MUTED, alpha=0.2, linewidth=0)
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if len(rounds) == 1:
        axes.set_xticks(rounds)
    axes.margins(x=0.01)
    axes.yaxis.set_major_formatter(_PERCENT)
    _plain(axes, grid="y")
    _head(axes, "Mean accuracy of the clients", handles)
    _label_ends(axes, ends, bold=[result.title for result in main])
    return figure


def emphasised(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the methods that figures draw thick: the report's subject, and local-only."""
    local = local_only(results)
    return [subject(results), *([local] if local and local is not subject(results) else [])]


@_styled
def spread_over_clients(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw every client's accuracy by round at the round's end, one panel a method.

    Thin lines are clients, each the mean over seeds; the band holds their middle half, the thick line is their mean.
    """
    columns = min(3 if len(results) <= 6 else 5, len(results))
    rows = -(-len(results) // columns)
    figure = _figure(width, rows * (0.84 * width / columns + 0.4) if columns == 5 else rows * (0.28 * width + 0.4))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axes in panels[len(results) :]:
        axes.set_visible(False)
    for place, (axes, result) in enumerate(zip(panels, results, strict=False)):
        colour = look(result.method).colour
        rounds, accuracy = result.client_curves(HEADLINE)
        values = np.array(accuracy)  # (rounds, N)
        dots: dict[str, Any] = {"marker": "o", "markersize": 3} if len(rounds) < 4 else {}
        axes.plot(rounds, values, color=colour, linewidth=0.5, alpha=0.35, zorder=2)
        axes.fill_between(rounds, *np.quantile(values, (0.25, 0.75), axis=1), color=colour, alpha=0.2, linewidth=0)
        axes.plot(rounds, values.mean(axis=1), color=colour, linewidth=2, zorder=3, **dots)
        axes.set_title(textwrap.fill(result.title, 34 if columns <= 3 else 16))
        if place >= len(results) - columns:  # nothing is below it
            axes.set_xlabel("Round")
            axes.tick_params(labelbottom=True)
        axes.xaxis.set_major_locator(MaxNLocator("auto" if columns <= 3 else 4, integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(_PERCENT)
        _plain(axes, grid="y")
    return figure


@_styled
def client_accuracy(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw each client's final accuracy with every method, one row a client.

    With local-only among the methods, the rows are sorted by what the report's subject gains over it, a bar joins the
    two, and the gain stands at the right.
    """
    main, local = subject(results), local_only(results)
    pair = None if local is None or local is main else (local, main)
    n = main.clients
    after = main.final[HEADLINE].per_client
    before = pair[0].final[HEADLINE].per_client if pair else [0.0] * n
    order = sorted(range(n), key=lambda client: (before[client] - after[client], client))
    named = n <= NAMED
    figure = _figure(width, (0.185 * n if named else 5.0) + 1.1)
    axes = figure.add_subplot()
    rows = range(n)
    if pair:
        for row, client in zip(rows, order, strict=True):
            gained = after[client] >= before[client]
            colour = look(main.method).colour if gained else MUTED
            ends = [before[client], after[client]]
            axes.plot(ends, [row, row], color=colour, alpha=0.3, linewidth=3 if named else 1.5, zorder=1)
            if named:
                _right_of(axes, row, signed(after[client] - before[client], None), INK if gained else MUTED)
    for result in sorted(results, key=lambda result: (result is main, result is local)):
        colour, marker = look(result.method)
        final = result.final[HEADLINE].per_client
        axes.plot(
            [final[client] for client in order],
            list(rows),
            linestyle="none",
            marker=marker,
            color=colour,
            markersize=(6.5 if result is main or result is local else 5.5) * (1 if named else 0.5),
            markerfacecolor=PAPER if result is local else colour,
            markeredgecolor=colour if result is local else PAPER,
            markeredgewidth=(1.3 if result is local else 0.4) * (1 if named else 0.5),
            label=result.title,
            zorder=3 if result is main else 2,
        )
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks(list(rows) if named else [], [_client(main, client) for client in order] if named else [])
    if not named:
        axes.set_ylabel(f"{n} clients" + (", largest gain at the top" if pair else ""))
    axes.xaxis.set_major_formatter(_PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10]))
    _plain(axes, grid="x")
    if pair and named:
        _right_of(axes, -0.75, f"{main.title} −\n{pair[0].title}", MUTED, va="bottom")
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    title = f"Final accuracy of each client, after {transfer(results)}"
    _head(axes, title, {result.title: lines[result.title] for result in results})
    return figure


@_styled
def coefficient_heatmaps(result: MethodResult, width: float = WIDTH) -> Figure:
    """Draw the coefficient matrix after the last round of the first seed, beside the similarity of the clients' labels.

    Row = student, column = teacher. Clients stand in the same order in both, by their two most frequent labels, so that
    clients with like data are neighbours.

    Raises:
        ValueError: if the method has no such matrix.
    """
    import torch

    from ktpfl_pipeline.data.partition import label_similarity

    run = result.runs[0]
    if run.coefficients is None:
        raise ValueError(f"{result.title} has no coefficient matrix to draw.")
    order = _by_labels(run.label_counts)
    learned = np.array(run.coefficients)[np.ix_(order, order)]
    similar = label_similarity(torch.tensor(run.label_counts)).numpy()[np.ix_(order, order)]
    n, beside = len(order), width >= 5
    figure = _figure(width, 0.5 * width + 0.3 if beside else 2 * width)
    left, right = figure.subplots(1, 2) if beside else figure.subplots(2, 1)
    named = n <= NAMED
    size = min(8.0, max(4.0, 0.62 * 72 * (0.38 if beside else 0.7) * width / n))
    weights = _weights([learned])
    for axes, matrix, norm, title, scale in (
        (left, learned, weights, f"Coefficients of {result.title}", "teacher's weight, square-root scale"),
        (right, similar, Normalize(0, 1), "Similarity of label distributions", "cosine similarity"),
    ):
        image = axes.imshow(matrix, cmap="Blues", norm=norm, interpolation="nearest")
        axes.set_title(title)
        ticks = list(range(n)) if named else []
        names = [_client(result, client) if axes is left or not beside else str(client) for client in order]
        axes.set_xticks(ticks, [str(client) for client in order] if named else [], fontsize=size)
        axes.set_yticks(ticks, names if named else [], fontsize=size)
        axes.tick_params(length=0, pad=2)
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.9, aspect=34, pad=0.05, label=scale)
        bar.locator = MaxNLocator(5)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2.5)
        if axes is left:
            bar.ax.axvline(1 / n, color=_MARK, linewidth=1.5)
            mark = bar.ax.text(1 / n, 1.15, "1/N", color=_MARK, fontsize=7, ha="center")
            mark.set(transform=bar.ax.get_xaxis_transform(), in_layout=False)  # else this bar sits lower than the other
    left.set(xlabel="Teacher", ylabel="Student")
    right.set(xlabel="Client", ylabel="Client")
    return figure


@_styled
def coefficient_panels(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw the matrices of several methods after the last round of the first seed, four in a row, on one scale.

    Rows, columns and colours are those of `coefficient_heatmaps`.
    """
    order = _by_labels(results[0].runs[0].label_counts)
    matrices = [np.array(result.runs[0].coefficients)[np.ix_(order, order)] for result in results]
    down = -(-len(results) // 4)
    figure = _figure(width, down * (0.23 * width + 0.35))
    panels = figure.subplots(down, 4, squeeze=False).flatten()
    for axes in panels[len(results) :]:
        axes.set_visible(False)
    for axes, matrix, result in zip(panels, matrices, results, strict=False):
        image = axes.imshow(matrix, cmap="Blues", norm=_weights(matrices), interpolation="nearest")
        axes.set_title(textwrap.fill(result.title, 18))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    panels[0].set(xlabel="Teacher", ylabel="Student")
    _weight_bar(figure, image, list(panels[: len(results)]))
    return figure


@_styled
def matrix_over_rounds(result: MethodResult, width: float = WIDTH) -> Figure:
    """Draw how the coefficient matrix changes: above after a few rounds of the first seed, below whom it weighs.

    Below are the mean over students of the weight on the client itself, on clients whose label distributions are alike
    and on all others, by round; dotted is what weights of 1/N would put there. Clients stand in the order of
    `coefficient_heatmaps`. Bands are ranges over seeds.

    Raises:
        ValueError: if the runs kept no matrices.
    """
    run = result.runs[0]
    if not run.matrices or not run.attention:
        raise ValueError(f"{result.title} kept no coefficient matrices by round.")
    order = _by_labels(run.label_counts)
    heights = [0.8 * width / max(4, len(run.matrices)), 0.25 * width]
    figure = _figure(width, sum(heights) + 1.6)
    grid = figure.add_gridspec(2, len(run.matrices), height_ratios=heights)
    matrices = {t: np.array(matrix)[np.ix_(order, order)] for t, matrix in sorted(run.matrices.items())}
    panels = [figure.add_subplot(grid[0, place]) for place in range(len(matrices))]
    for axes, (t, matrix) in zip(panels, matrices.items(), strict=True):
        image = axes.imshow(matrix, cmap="Blues", norm=_weights(matrices.values()), interpolation="nearest")
        axes.set_title(f"Round {t}")
        axes.set(xticks=[], yticks=[], anchor="W")
        axes.spines[:].set_visible(False)
    panels[0].set(xlabel="Teacher", ylabel="Student")
    _weight_bar(figure, image, panels)
    _attention(figure.add_subplot(grid[1, :]), result)
    return figure


def _attention(axes: Axes, result: MethodResult) -> None:
    """Draw the lower half of `matrix_over_rounds`."""
    by_run = [_even_attention(run.label_counts) for run in result.runs]
    even = {group: fmean(one[group] for one in by_run) for group in ATTENTION}
    ends = []
    for group, (name, colour) in ATTENTION.items():
        if not even[group]:  # no clients are alike, or all are
            continue
        by_seed = [run.attention[group] for run in result.runs]
        rounds, means = list(range(1, len(by_seed[0]) + 1)), _mean(by_seed)
        axes.plot(rounds, means, color=colour, linewidth=2, label=name, marker="o" if len(rounds) < 4 else "")
        if len(by_seed) > 1:
            low, high = (list(map(extreme, zip(*by_seed, strict=True))) for extreme in (min, max))
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.axhline(even[group], color=colour, linewidth=0.9, linestyle=":")
        ends.append((name, colour, float(rounds[-1]), means[-1]))
    axes.set_xlabel("Round")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    axes.set_ylim(-0.02, 1.02)
    axes.margins(x=0.01)
    axes.yaxis.set_major_formatter(_PERCENT)
    _plain(axes, grid="y")
    handles: dict[str, Any] = {
        "learned": Line2D([], [], color=MUTED, linewidth=2),
        "if all weights were 1/N": Line2D([], [], color=MUTED, linewidth=0.9, linestyle=":"),
    }
    if len(result.runs) > 1:
        handles[f"range over {len(result.runs)} seeds"] = Patch(color=MUTED, alpha=0.2, linewidth=0)
    _head(axes, "Weight of a row, mean over the students", handles)
    _label_ends(axes, ends)


def _even_attention(label_counts: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return what `matrix.attention` makes of a matrix whose entries are all 1/N."""
    import torch

    from ktpfl_pipeline.data.partition import label_similarity

    n = len(label_counts)
    even = torch.full((1, n, n), 1.0 / n, dtype=torch.float64)
    return {
        group: by_round[0] for group, by_round in attention(even, label_similarity(torch.tensor(label_counts))).items()
    }


@_styled
def communication(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw what all clients sent and received over the whole run in MB, one bar a method, by ledger and direction.

    In the form of the paper's Figure 5. The number is the bar's length; means over seeds.
    """
    figure = _figure(width, 0.24 * len(results) + 1.0)
    axes = figure.add_subplot()
    rows, starts = range(len(results)), np.zeros(len(results))
    handles: dict[str, Any] = {}
    for ledger, colour in TRAFFIC.items():
        lengths = np.array([result.traffic[ledger] / 1e6 for result in results])
        bars = axes.barh(rows, lengths, left=starts, height=0.72, color=colour)
        starts = starts + lengths
        if lengths.any():
            handles[ledger.replace("public", "public data").replace("_", " ")] = bars
    for row, total in zip(rows, starts, strict=True):
        axes.annotate(megabytes(1e6 * total), (total, row), (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(list(rows), [result.title for result in results])
    axes.set(ylim=(len(results) - 0.4, -0.6), xlabel="MB", xlim=(0, 1.1 * max(*starts, 1e-6)))
    _plain(axes, grid="x")
    _head(axes, "Traffic of all clients over the whole run", handles or {"nothing is sent": Patch(color=MUTED)})
    return figure


@_styled
def theorem(result: MethodResult, width: float = WIDTH) -> Figure:
    """Draw the check of Theorem 1: for each client and seed, the loss of a mixture against the one that bounds it.

    Across is the smaller loss of the client's own model and of the average of all clients' predictions, upward that of
    the fitted mixture and of the learned coefficients. On the line and below it a mixture is no worse than both.
    Left on the half of the held-out images that the mixture was fitted to, right on the other half.

    Raises:
        ValueError: if no run of the method was checked.
    """
    checks = [run.theorem for run in result.runs if run.theorem is not None]
    if not checks:
        raise ValueError(f"Theorem 1 was not checked for {result.title}.")
    figure = _figure(width, 0.5 * width + 0.5)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    shown: list[float] = []
    for axes, title, halves in zip(
        panels,
        ("The half that was fitted", "The other half"),
        ([check.fit for check in checks], [check.test for check in checks]),
        strict=True,
    ):
        bound = [min(pair) for half in halves for pair in zip(half["own"], half["average"], strict=True)]
        for mixture, (name, colour, marker) in THEOREM.items():
            if any(mixture not in half for half in halves):
                continue
            losses = [loss for half in halves for loss in half[mixture]]
            axes.plot(
                bound,
                losses,
                marker,
                color=colour,
                markersize=4.5,
                alpha=0.75,
                markeredgewidth=0.9,
                label=name,
                markerfacecolor=colour if mixture == "fitted" else "none",
            )
            shown += [*bound, *losses]
        axes.set_title(title)
    reach = (0.0, 1.05 * max(shown))
    for axes in panels:
        axes.plot(reach, reach, color=MUTED, linewidth=0.8, zorder=1)
        axes.set(xlim=reach, ylim=reach, xlabel="better of own model and average, loss (nats)", aspect="equal")
        axes.grid()
        axes.tick_params(length=0)
    panels[0].set_ylabel("mixture, loss (nats)")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=len(names), handletextpad=0.2)
    return figure


@_styled
def labels_per_client(label_counts: Sequence[Sequence[int]], title: str, width: float = WIDTH) -> Figure:
    """Draw how many samples of each class every client has, as stacked bars.

    Args:
        label_counts: (N, K).
        title: above the figure.
        width: in inches.
    """
    counts = np.array(label_counts)
    n, classes = counts.shape
    named = n <= NAMED
    figure = _figure(width, min(8.0, 0.17 * n + 1.0))
    axes = figure.add_subplot()
    starts = np.cumsum(counts, axis=1) - counts
    longest = counts.sum(axis=1).max()
    for label, colour in enumerate(label_colours(classes)):
        axes.barh(
            range(n), counts[:, label], left=starts[:, label], height=0.8, color=colour, edgecolor=PAPER, linewidth=0.4
        )
        for client in range(n) if named else ():
            if counts[client, label] * width > 0.14 * len(str(label)) * longest:  # the number fits
                middle = starts[client, label] + counts[client, label] / 2
                axes.text(middle, client, str(label), fontsize=6, color=_on(colour), ha="center", va="center_baseline")
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks(list(range(n)) if named else [], [str(client) for client in range(n)] if named else [])
    axes.set(xlabel="LabelledDataset", ylabel="Client", xlim=(0, 1.01 * longest))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    _plain(axes, grid="x")
    names = ["label 0", *map(str, range(1, classes))]
    patches = [Patch(color=colour) for colour in label_colours(classes)]
    _head(axes, title, dict(zip(names, patches, strict=True)), handlelength=0.9, columnspacing=1.0)
    return figure


def svg(figure: Figure, name: str) -> str:
    """Return the figure as an ``svg`` element to put into a page: text stays text, and `TOKENS` are CSS variables.

    Args:
        figure: a figure of this module.
        name: prefix of its ids, which must be unique in the page.
    """
    buffer = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({**_STYLE, "svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' id="image\w+"', "", text)  # nobody refers to them, and equal images have equal ones
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, variable in TOKENS.items():
        text = text.replace(colour, variable)
    return text


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _weights(matrices: Iterable[Any]) -> PowerNorm:
    """Return the scale of colours for matrices of weights, (N, N) each: from 0 to the largest, at least to 2/N."""
    matrices = list(matrices)
    return PowerNorm(0.5, vmin=0, vmax=min(1.0, max(2 / len(matrices[0]), *(float(each.max()) for each in matrices))))


def _weight_bar(figure: Figure, image: Any, panels: list[Axes]) -> None:
    """Put the scale of weights at the right of panels."""
    bar = figure.colorbar(image, ax=panels, shrink=0.85, aspect=14, pad=0.02, label="weight,\nsquare-root scale")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2.5)


def _by_labels(label_counts: Sequence[Sequence[int]]) -> "np.ndarray[Any, np.dtype[np.intp]]":
    """Return the clients ordered by their two most frequent labels, so that clients with like data are neighbours."""
    counts = np.array(label_counts)
    return np.lexsort((*np.sort(np.argsort(-counts, axis=1, kind="stable")[:, :2], axis=1).T[::-1],))


def _marked(points: int, place: int) -> list[int]:
    """Return which points of a line carry its marker: some six, not the same for neighbouring lines, and the last."""
    step = max(1, points // 6)
    return [*range(place % step, points - 1, step), points - 1]


def _mean(by_seed: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(values) for values in zip(*by_seed, strict=True)]


def _plain(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Leave of the axes the grid and the line at the bottom."""
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)


def _head(axes: Axes, title: str, handles: dict[str, Any], **options: Any) -> None:
    """Put a title over a legend over the axes, both as wide as the axes at most."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    width, scale = axes.get_window_extent().width, 72 / axes.figure.dpi
    for columns in range(min(20, len(handles)), 0, -1):
        legend = axes.legend(
            handles.values(),
            handles.keys(),
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            borderaxespad=0.5,
            borderpad=0,
            **{"handlelength": 1.8, "columnspacing": 1.6, "handletextpad": 0.5, **options},
        )
        if legend.get_window_extent().width <= width:
            break
    legend.set_in_layout(False)  # the title's padding keeps its place
    axes.set_title(textwrap.fill(title, int(width * scale / 4.8)), pad=legend.get_window_extent().height * scale + 9)


def _label_ends(axes: Axes, ends: Sequence[tuple[str, str, float, float]], bold: Collection[str] | None = None) -> None:
    """Write each line's name at its end, moved apart where names would overlap.

    Args:
        axes: with the lines.
        ends: name, colour and last point of each line.
        bold: the names to write in bold; None writes all of them so.
    """
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height / axes.figure.dpi * 72
    ends = sorted(ends, key=lambda end: end[3])
    gap = 11 * (high - low) / points
    inside = [min(end[3], high - (len(ends) - 1 - place) * gap) for place, end in enumerate(ends)]
    heights = apart([max(height, low + place * gap) for place, height in enumerate(inside)], gap)
    for (name, colour, x, y), height in zip(ends, heights, strict=True):
        moved = abs(height - y) > 2 * (high - low) / points
        leader = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5)}
        axes.annotate(
            name,
            xy=(x, y),
            xytext=(1.025, height),
            textcoords=axes.get_yaxis_transform(),
            color=colour,
            fontweight="bold" if bold is None or name in bold else "normal",
            va="center",
            arrowprops={**leader, "color": colour} if moved else None,
            annotation_clip=False,
        )


def apart(values: Sequence[float], gap: float) -> list[float]:
    """Return ascending `values` moved as little as possible, in least squares, to be at least `gap` apart."""
    blocks: list[list[float]] = []  # of values less their places times gap: these must not descend
    for place, value in enumerate(values):
        blocks.append([value - place * gap])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    level = [fmean(block) for block in blocks for _ in block]
    return [value + place * gap for place, value in enumerate(level)]


def _right_of(axes: Axes, row: float, text: str, colour: str, va: Any = "center_baseline") -> None:
    axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), color=colour, fontsize=8, va=va)


def _client(result: MethodResult, client: int) -> str:
    return f"{architecture_title(result.runs[0].architectures[client])} {client}"


def _on(colour: str) -> str:
    """Return black or white, whichever reads better on a colour."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#fefefe"
