"""The classes of the clients' samples."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ktpfl_pipeline.reports.figures.base import WIDTH, color_bar, head, plain, shortened, single, styled
from ktpfl_pipeline.reports.style import NAMED, ON_DARK, ON_LIGHT, PAPER, label_colors

BARS = 20
"""The largest number of classes for which bars have distinguishable colors."""


@styled
def labels_per_client(label_counts: Sequence[Sequence[int]], title: str, names: Sequence[str] = ()) -> Figure:
    """Draw each client's number of samples per class, as stacked bars, or as shades if there are many classes.

    Args:
        label_counts: (N, K), the number of samples by client and class.
        title: the title above the bars.
        names: (N,), the names of the clients; empty shows their numbers.
    """
    counts = np.array(label_counts)
    n, classes = counts.shape
    named, names = n <= NAMED, [*map(shortened, names)]
    if classes > BARS:
        return _shades(counts, title, list(names) or list(map(str, range(n))))
    figure, axes = single(min(8.0, 0.17 * n + 1.0))
    starts = np.cumsum(counts, axis=1) - counts
    longest = counts.sum(axis=1).max()
    for label, color in enumerate(label_colors(classes)):
        axes.barh(
            range(n), counts[:, label], left=starts[:, label], height=0.8, color=color, edgecolor=PAPER, linewidth=0.4
        )
        for client in range(n) if named else ():
            if counts[client, label] * WIDTH > 0.14 * len(str(label)) * longest:  # the number fits
                middle = starts[client, label] + counts[client, label] / 2
                axes.text(middle, client, str(label), fontsize=6, color=_on(color), ha="center", va="center_baseline")
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks(list(range(n)) if named else [], (names or list(map(str, range(n)))) if named else [])
    axes.set(xlabel="Samples", ylabel="" if names and named else "Client", xlim=(0, 1.01 * longest))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    plain(axes, grid="x")
    names = ["class 0", *map(str, range(1, classes))]
    patches = [Patch(color=color) for color in label_colors(classes)]
    head(axes, title, dict(zip(names, patches, strict=True)), handlelength=0.9, columnspacing=1.0)
    return figure


def _shades(counts: NDArray[np.int64], title: str, names: Sequence[str]) -> Figure:
    """Draw counts (N, K) as a row of shades per client, on a logarithmic scale; classes without samples stay blank."""
    n, classes = counts.shape
    figure, axes = single(min(8.0, max(2.5, 0.17 * n + 1.4)))
    norm = LogNorm(1, max(2, counts.max()))
    image = axes.imshow(np.ma.masked_equal(counts, 0), cmap="viridis_r", norm=norm, aspect="auto", interpolation="none")
    axes.set_yticks(list(range(n)) if n <= NAMED else [], names if n <= NAMED else [])
    axes.set(xlabel=f"Class, 0 to {classes - 1}", ylabel="" if n <= NAMED else f"{n} clients")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.tick_params(length=0)
    bar = color_bar(figure, image, axes, shrink=0.8, aspect=24, pad=0.02, label="Samples")
    bar.ax.yaxis.set_major_formatter("{x:g}")
    axes.set_title(title)
    return figure


def _on(color: str) -> str:
    red, green, blue = mpl.colors.to_rgb(color)
    return ON_LIGHT if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else ON_DARK
