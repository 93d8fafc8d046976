"""Blank figures: drawing and writing figures takes two thirds of a short run, and more of a report."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.figures import base

COARSE = 20
"""Dots per inch, a tenth of the usual number, because compressing an image takes time too."""
_save = Figure.savefig


def draw(figure: Figure, renderer: Any) -> None:
    """Draw only the background of the figure."""
    figure.patch.draw(renderer)


def save(figure: Figure, *arguments: Any, **settings: Any) -> None:
    """Write the figure with `COARSE` dots per inch."""
    _save(figure, *arguments, **{**settings, "dpi": COARSE})


def leave(engine: ConstrainedLayoutEngine, figure: Figure) -> None:
    """Compute no layout, because measuring every label takes a third of a short run."""


@contextmanager
def blank_figures(*, placed: bool = False) -> Iterator[None]:
    """Make all figures blank inside the context.

    Args:
        placed: whether the layout of axes and labels is computed, for tests that check it.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not placed:
            patch.setattr(ConstrainedLayoutEngine, "execute", leave)
        patch.setattr(Figure, "draw", draw)
        patch.setattr(Figure, "savefig", save)
        yield


@contextmanager
def no_figures() -> Iterator[None]:
    """Make all figures empty inside the context: making axes takes a third of a report with blank figures."""
    with pytest.MonkeyPatch.context() as patch:
        for name in figures.__all__:
            patch.setattr(figures, name, lambda *_, **__: base.blank(1.0))
        yield
