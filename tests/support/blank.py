"""Figures that stay blank and are written as ever: drawing them is two thirds of a short run, and more of a report."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.figure import Figure


def draw(figure: Figure, renderer: Any) -> None:
    """Draw no more of the figure than its background."""
    figure.patch.draw(renderer)


@contextmanager
def blank_figures() -> Iterator[None]:
    """Let every figure be blank in here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "draw", draw)
        yield
