"""Confusion matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.reports.figures.base import WIDTH, color_bar, grid_of_panels, styled

MOST = 30
"""Classes up to which all are named on an axis."""
WRITTEN = 6
"""Classes up to which shares are written into the cells."""


@styled
def confusion_matrices(results: Sequence[MethodResult]) -> Figure:
    """Draw the confusion matrix of each method, over all its runs, one panel per method.

    Row = true class, column = predicted class; a cell is the share of the class's test samples.

    Raises:
        ValueError: if a method has no confusion matrix.
    """
    if any(not run.confusion for result in results for run in result.runs):
        raise ValueError("A method without a confusion matrix cannot be drawn.")
    across = min(3 if len(results) <= 6 else 4, len(results))
    titles = [result.title for result in results]
    figure, panels = grid_of_panels(titles, across, WIDTH / max(across, 2) + 0.4, 60 // across)
    names = results[0].runs[0].classes
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    for n, (axes, result) in enumerate(zip(panels, results, strict=True)):
        counts = np.sum([run.confusion for run in result.runs], axis=0)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        image = axes.imshow(shares, cmap="Blues", norm=Normalize(0, 1), interpolation="nearest")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        size: Any = min(7.5, 90 / len(names))
        if len(names) <= MOST:
            axes.set_xticks(range(len(names)), short, rotation=90 if max(map(len, short)) > 2 else 0, fontsize=size)
            axes.set_yticks(range(len(names)), short if n % across == 0 else [""] * len(names), fontsize=size)
        else:
            axes.set(xticks=[], yticks=[])
        for row, column in np.ndindex(*shares.shape) if len(names) <= WRITTEN else ():
            shade = "#fefefe" if shares[row, column] > 0.6 else "#010101"
            written = f"{100 * shares[row, column]:.0f}"
            axes.text(column, row, written, ha="center", va="center", fontsize=7, color=shade)
    panels[0].set(xlabel="Predicted class", ylabel="True class")
    rows = -(-len(results) // across)
    place: Any = {"anchor": (0.0, 0.5 if rows == 1 else 1.0), "shrink": 0.7 / rows, "aspect": 24, "pad": 0.02}
    color_bar(figure, image, panels, label="share of a class's test samples", **place)
    return figure
