"""Figures of studies: accuracy by the value of a swept setting, and the course of a tuning."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.study import Cell, chosen, numeric, touched
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports import style
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.figures.base import styled
from ktpfl_pipeline.reports.words import as_text

DECADE = 10
"""The ratio of the largest to the smallest positive value from which an axis is logarithmic."""


@styled
def accuracy_by_value(variants: Sequence[Comparison], title: str) -> Figure:
    """Draw each method's mean accuracy against the swept setting, `title`, with the standard deviation over seeds.

    The value that validation accuracy chooses has a ring. Values that are not numbers are side by side, without lines.
    """
    figure, axes = base.single(3.3)
    values, numbers = [variant.value for variant in variants], numeric(variants)
    places = [float(value) if numbers else float(n) for n, value in enumerate(values)]
    methods, ends = list(variants[0].methods), []
    handles: dict[str, Any] = {}
    for n, method in enumerate(methods):
        apart = 0.0 if numbers else 0.08 * (n - (len(methods) - 1) / 2)
        handles |= _draw(axes, variants, method, [place + apart for place in places])
        last = variants[places.index(max(places))].methods[method]
        ends.append((last.title, style.look(method).color, max(places), last.final[AFTER_TRANSFER].mean))
    if numbers and min(values) > 0 and max(values) >= DECADE * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, list(map(as_text, values)))
    axes.set_xlabel(title)
    axes.margins(x=0.04 if numbers else 0.12)
    base.percent_up(axes)
    base.head(axes, "Mean accuracy of the clients", handles or {"one seed": Line2D([], [], color=style.MUTED)})
    base.label_ends(axes, ends)
    return figure


def _draw(axes: Axes, variants: Sequence[Comparison], method: str, places: Sequence[float]) -> dict[str, Any]:
    """Draw one method at the positions `places`, and return its entries of the legend."""
    look, numbers, best = style.look(method), numeric(variants), chosen(variants, method)
    order = sorted(range(len(variants)), key=places.__getitem__)  # a line goes from left to right
    variants, places = [variants[at] for at in order], [places[at] for at in order]
    finals = [variant.methods[method].final[AFTER_TRANSFER] for variant in variants]
    means, own = [final.mean for final in finals], touched(variants, method)
    shape: Any = {"marker": look.marker if own or not numbers else "", "markersize": 4.5}
    dashes = "-" if own else base.DASHES
    axes.plot(places, means, color=look.color, linewidth=2 if numbers else 0, linestyle=dashes, zorder=3, **shape)
    handles: dict[str, Any] = {}
    if all(final.seed_std is not None for final in finals):
        low, high = ([final.mean + side * (final.seed_std or 0) for final in finals] for side in (-1, 1))
        if numbers:
            axes.fill_between(places, low, high, color=look.color, alpha=0.15, linewidth=0)
        else:
            axes.vlines(places, low, high, color=look.color, alpha=0.5, linewidth=1.5)
        shown = Patch(color=style.MUTED, alpha=0.2, linewidth=0) if numbers else Line2D([], [], color=style.MUTED)
        handles[f"± standard deviation over {len(variants[0].methods[method].seeds)} seeds"] = shown
    if best is not None:
        ring: dict[str, Any] = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linewidth": 0}
        at = variants.index(best)
        axes.plot([places[at]], [means[at]], markeredgecolor=look.color, markeredgewidth=1.4, zorder=4, **ring)
        handles["chosen by validation accuracy"] = Line2D([], [], markeredgecolor=style.MUTED, **ring)
    return handles


@styled
def search_history(methods: Mapping[str, Sequence[Cell]]) -> Figure:
    """Draw the validation accuracy of each candidate of every method (registry names), and the best so far as a line.

    The x-axis is the number of the trial, from 1. Candidates that diverged are left out.
    """
    figure, axes = base.single(3.2)
    handles: dict[str, Any] = {}
    for method, cells in methods.items():
        numbers = [number for number, cell in enumerate(cells, 1) if cell.score is not None]
        scores = [cell.score for cell in cells if cell.score is not None]
        color, marker = style.look(method)
        axes.plot(numbers, list(accumulate(scores, max)), color=color, linewidth=1.2, drawstyle="steps-post")
        (handles[title_of(method)],) = axes.plot(numbers, scores, marker, color=color, markersize=5)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_xlabel("Trial")
    base.percent_up(axes)
    base.head(axes, "Validation accuracy", handles)
    return figure


@styled
def search_slices(space: Mapping[str, Any], cells: Sequence[Cell]) -> Figure:
    """Draw the validation accuracy of a method's candidates by the value of each hyperparameter, later trials darker.

    `space` is the method's search space in the settings of the tuning. Candidates that diverged are left out.
    """
    finished = [cell for cell in cells if cell.score is not None]
    figure = base.blank(2.6)
    panels = figure.subplots(1, len(space), sharey=True, squeeze=False)[0]
    for axes, (name, tried) in zip(panels, space.items(), strict=True):
        values = [cell.value[name] for cell in finished]
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
            values = list(map(as_text, values))
        elif isinstance(tried, Mapping) and tried.get("log") and min(values) > 0:
            base.decades_across(axes, written="{x:g}")
        shades: dict[str, Any] = {"cmap": "Blues", "norm": Normalize(-0.5 * len(finished), len(finished) - 1)}
        scores = [cell.score for cell in finished]
        axes.scatter(values, scores, 32, range(len(finished)), **shades, edgecolors=style.NEUTRAL, linewidths=0.5)
        axes.set_xlabel(name)
        base.percent_up(axes)
    panels[0].set_ylabel("Validation accuracy")
    return figure
