"""Figures that are made and stay blank: drawing and writing them is two thirds of a short run, and more of a report."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

COARSE = 20
"""Dots per inch: a tenth of the usual, as packing a picture takes its time too."""
_save = Figure.savefig


def draw(figure: Figure, renderer: Any) -> None:
    """Draw no more of the figure than its background."""
    figure.patch.draw(renderer)


def save(figure: Figure, *arguments: Any, **settings: Any) -> None:
    """Write the figure as few dots."""
    _save(figure, *arguments, **{**settings, "dpi": COARSE})


def leave(engine: ConstrainedLayoutEngine, figure: Figure) -> None:
    """Place nothing: to measure every label is a third of a short run."""


@contextmanager
def blank_figures(*, placed: bool = False) -> Iterator[None]:
    """Let every figure be blank in here.

    Args:
        placed: whether axes and labels get their places, for tests that ask for these.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not placed:
            patch.setattr(ConstrainedLayoutEngine, "execute", leave)
        patch.setattr(Figure, "draw", draw)
        patch.setattr(Figure, "savefig", save)
        yield
