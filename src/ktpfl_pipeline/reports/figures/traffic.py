"""What clients send and receive."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.reports.figures.base import WIDTH, grid_of_panels, head, plain, single, styled
from ktpfl_pipeline.reports.numbers import megabytes
from ktpfl_pipeline.reports.style import BLUE, MUTED, VERMILION

TRAFFIC = {
    "knowledge_up": BLUE,
    "knowledge_down": "#8fc4e3",
    "parameters_up": VERMILION,
    "parameters_down": "#f2b08a",
    "public_down": "#b6bcc6",
}
"""Categories of traffic and their colours: one hue a kind, light on the way down."""


@styled
def communication(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw what all clients sent and received over the whole run in MB, one bar a method, by category and direction.

    In the form of the paper's Figure 5. The number is the bar's length; means over seeds.
    """
    figure, axes = single(width, 0.24 * len(results) + 1.0)
    handles = _bars(axes, results, room=1.1) or {"nothing is sent": Patch(color=MUTED)}
    head(axes, "Traffic of all clients over the whole run", handles)
    return figure


@styled
def traffic_panels(columns: Mapping[str, Sequence[MethodResult]], width: float = WIDTH) -> Figure:
    """Draw the same, one panel a comparison, each with a scale of its own."""
    most = max(map(len, columns.values()))
    figure, panels = grid_of_panels(list(columns), min(2, len(columns)), (width, 0.22 * most + 0.75), 44, above=0.4)
    handles: dict[str, Any] = {}
    for axes, results in zip(panels, columns.values(), strict=True):
        handles |= _bars(axes, results, room=1.15)
        axes.set_ylim(most - 0.4, -0.6)
    names = [name for name in map(_title, TRAFFIC) if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside upper left", ncols=5, handlelength=1.6)
    return figure


def _bars(axes: Axes, results: Sequence[MethodResult], room: float) -> dict[str, Any]:
    """Draw a bar for each method, `room` times as far as the longest, and return what the legend says of them."""
    rows, starts = range(len(results)), np.zeros(len(results))
    handles: dict[str, Any] = {}
    for category, colour in TRAFFIC.items():
        lengths = np.array([result.traffic[category] / 1e6 for result in results])
        bars = axes.barh(rows, lengths, left=starts, height=0.72, color=colour)
        starts = starts + lengths
        if lengths.any():
            handles[_title(category)] = bars
    for row, total in zip(rows, starts, strict=True):
        axes.annotate(str(megabytes(1e6 * total)), (total, row), (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(list(rows), [result.title for result in results])
    axes.set(ylim=(len(results) - 0.4, -0.6), xlabel="MB", xlim=(0, room * max(*starts, 1e-6)))
    plain(axes, grid="x")
    return handles


def _title(category: str) -> str:
    return category.replace("public", "public data").replace("_", " ")
