"""The course of a tuning: validation accuracy by candidate, and by the value of each hyperparameter."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.methods import title
from ktpfl_pipeline.reports.figures.base import blank, decades_across, head, percent_up, single, styled
from ktpfl_pipeline.reports.style import NEUTRAL, look
from ktpfl_pipeline.reports.words import setting


@styled
def search_history(methods: Mapping[str, Sequence[Cell]]) -> Figure:
    """Draw the validation accuracy of each candidate of every method (registry names), and as a line the best so far.

    The number of a candidate is its place in the search. Candidates that diverged are left out.
    """
    figure, axes = single(3.2)
    handles: dict[str, Any] = {}
    for method, cells in methods.items():
        numbers = [number for number, cell in enumerate(cells) if cell.score is not None]
        scores = [cell.score for cell in cells if cell.score is not None]
        colour, marker = look(method)
        axes.plot(numbers, list(accumulate(scores, max)), color=colour, linewidth=1.2, drawstyle="steps-post")
        (handles[title(method)],) = axes.plot(numbers, scores, marker, color=colour, markersize=5)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_xlabel("Candidate")
    percent_up(axes)
    head(axes, "Validation accuracy", handles)
    return figure


@styled
def search_slices(space: Mapping[str, Any], cells: Sequence[Cell]) -> Figure:
    """Draw the validation accuracy of a method's candidates by the value of each hyperparameter, later ones darker.

    The `space` is what may be tried, as the tuning's settings have it. Candidates that diverged are left out.
    """
    finished = [cell for cell in cells if cell.score is not None]
    figure = blank(2.6)
    panels = figure.subplots(1, len(space), sharey=True, squeeze=False)[0]
    for axes, (name, tried) in zip(panels, space.items(), strict=True):
        values = [cell.value[name] for cell in finished]
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
            values = list(map(setting, values))
        elif isinstance(tried, Mapping) and tried.get("log") and min(values) > 0:
            decades_across(axes, written="{x:g}")
        shades: dict[str, Any] = {"cmap": "Blues", "norm": Normalize(-0.5 * len(finished), len(finished) - 1)}
        scores = [cell.score for cell in finished]
        axes.scatter(values, scores, 32, range(len(finished)), **shades, edgecolors=NEUTRAL, linewidths=0.5)
        axes.set_xlabel(name)
        percent_up(axes)
    panels[0].set_ylabel("Validation accuracy")
    return figure
