"""Code that all figures share: style, axes, legends, names at the ends of lines, and SVG for pages.

Figures are matplotlib objects, made without pyplot and without changing matplotlib's settings, so they can be drawn
anywhere and saved in any format. A method has the same color and marker in all figures. The colors are distinguishable
with all common kinds of color blindness (Okabe and Ito's colors, and Tol's for labels).
"""

import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Literal, ParamSpec
from weakref import WeakSet

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ktpfl_pipeline.reports.style import BLUE, GRAY, INK, MUTED, NEUTRAL, ON_DARK, ON_LIGHT, PAPER, RULE, readable
from ktpfl_pipeline.reports.words import wrapped

P = ParamSpec("P")

TOKENS = {
    **{INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper", NEUTRAL: "neutral", BLUE: "blue", GRAY: "gray"},
    **{ON_DARK: "on-dark", ON_LIGHT: "on-light"},
}
"""The colors that depend on a page's light or dark mode. `svg` writes them as CSS variables of these names."""
WIDTH = 7.0
"""The width of a page in inches."""
DPI = 200
PERCENT = FuncFormatter(lambda share, _: f"{round(100 * share, 2):g} %")
FONTS = ("Helvetica Neue", "Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")
"""The fonts of figures, in order of preference. The fonts of `SCRIPTS` have further characters."""
SCRIPTS = ("Noto Sans", "Source Han Sans", "WenQuanYi", "Hiragino", "Microsoft YaHei", "Malgun", "Nirmala", "FreeSans")
"""Beginnings of the names of fonts for further scripts."""
DASHES: Any = (0, (4, 2.5))
_STYLE: Any = {  # matplotlib's names
    "text.parse_math": False,  # names of clients and classes are text, also with dollar signs
    **dict.fromkeys(("pdf.fonttype", "ps.fonttype"), 42),  # venues reject Type 3 fonts
    "font.size": 8.5,
    "text.color": INK,
    "figure.dpi": DPI,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "grid.linewidth": 0.6,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAPER),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), RULE),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), MUTED),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "lines.solid_capstyle": "round",
}


@cache
def families() -> list[str]:
    """Return the installed fonts for figures in order. matplotlib takes a character from the first font that has it."""
    from matplotlib.font_manager import fontManager

    installed = sorted({font.name for font in fontManager.ttflist})
    return [*(name for name in FONTS if name in installed), *(name for name in installed if name.startswith(SCRIPTS))]


@contextmanager
def style() -> Iterator[None]:
    """Apply this module's style inside the context. A character without a font is drawn as a box, without a warning."""
    with mpl.rc_context({**_STYLE, "font.family": families()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Return a function that draws with the style of this module and does not change matplotlib's settings."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style():
            figure = draw(*args, **kwargs)
            if figure not in _ARRANGED:
                arrange(figure)  # this also makes the ticks, in this style
            figure.set_layout_engine(None)  # the layout is kept; with an engine, each file would be drawn twice
            return figure

    return drawn


def arrange(drawn: Any) -> None:
    """Compute the layout of a figure or of axes without drawing them."""
    figure = drawn.get_figure(root=True)
    if layout := figure.get_layout_engine():
        layout.execute(figure)


_ARRANGED: "WeakSet[Any]" = WeakSet()
"""The figures whose layout is final. A layout takes longer than a drawing, so it is computed once."""


def blank(height: float) -> Figure:
    """Return an empty figure as wide as a page; `height` is in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)  # keeps one renderer; matplotlib would make one per measured text
    return figure


def single(height: float) -> tuple[Figure, Axes]:
    figure = blank(height)
    return figure, figure.add_subplot()


def grid_of_panels(
    titles: Sequence[str], across: int, height: float, wrap: int, above: float = 0.0, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a titled panel for each title, in reading order, `across` of them in a row.

    `height` is the height of a row and `above` the height of a legend above all panels, in inches. `wrap` is the width
    of titles in characters. `shared` are options for matplotlib's ``subplots``.
    """
    down = -(-len(titles) // across)
    figure = blank(down * height + above)
    panels = list(figure.subplots(down, across, squeeze=False, **shared).flatten())
    for axes in panels[len(titles) :]:
        axes.set_visible(False)
    for axes, title in zip(panels, titles, strict=False):
        axes.set_title("\n".join(wrapped(title, wrap)))
    return figure, panels[: len(titles)]


def plain(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Hide all lines of the axes except the grid and the bottom line."""
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)


def percent_up(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(PERCENT)
    plain(axes, grid="y")


def rounds_across(axes: Axes, ticks: int | Literal["auto"] = "auto") -> None:
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=[1, 2, 5, 10]))
    percent_up(axes)


def decades_across(axes: Axes, ticks: Sequence[int] = (1, 2, 5), written: str = "{x:,g}") -> None:
    """Make the horizontal axis logarithmic, with ticks at these multiples of each power of ten."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(10, subs=ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(written)


def legend_above(figure: Figure, handles: dict[str, Any], columns: int) -> None:
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns, handlelength=1.6)


def color_bar(figure: Figure, image: Any, axes: Axes | list[Axes], **options: Any) -> Any:
    bar = figure.colorbar(image, ax=axes, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2.5)
    return bar


def band(axes: Axes, across: Sequence[float], by_seed: Sequence[Sequence[float]], color: str) -> list[Artist]:
    """Draw the range over seeds around a line. With one seed, draw nothing."""
    look: Any = {"color": color, "alpha": 0.15, "linewidth": 0}
    return [axes.fill_between(across, np.min(by_seed, 0), np.max(by_seed, 0), **look)] if len(by_seed) > 1 else []


def range_of(seeds: int) -> dict[str, Any]:
    return {f"range over {seeds} seeds": Patch(color=MUTED, alpha=0.2, linewidth=0)} if seeds > 1 else {}


def head(axes: Axes, title: str, handles: dict[str, Any], **options: Any) -> None:
    """Add a title above the axes, and a legend below the title, at most as wide as the axes, with these `options`."""
    scale = 72 / axes.figure.dpi
    look = {"handlelength": 1.8, "columnspacing": 1.6, "handletextpad": 0.5, "borderaxespad": 0.5, "borderpad": 0}
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), **look, **options}

    def put(columns: int, lines: str) -> float:
        """Add title and legend, and return the legend's width in pixels."""
        width = height = 0.0
        if handles:
            legend = axes.legend(handles.values(), handles.keys(), ncols=columns, **place)
            legend.set_in_layout(False)  # the title's padding keeps its place
            width, height = legend.get_window_extent().size
        axes.set_title(lines, pad=height * scale + 9)
        return float(width)

    most = columns = min(20, len(handles))
    needed = put(most, title)
    arrange(axes)
    width = axes.get_window_extent().width
    lines = "\n".join(wrapped(title, int(width * scale / 4.8)))
    while needed > width and columns > 1:
        columns -= 1
        needed = put(columns, lines)
    if (columns, lines) == (most, title):
        _ARRANGED.add(axes.get_figure(root=True))
    elif columns == most:
        put(most, lines)


def shortened(name: str, most: int = 28) -> str:
    """Return the name of a client or class, shortened to `most` characters, so that the axes have enough room.

    The end of a long name is kept, because it often has a number.
    """
    kept = most - 1
    return name if len(name) <= most else f"{name[: kept - kept // 3]}…{name[-(kept // 3) :]}"


def label_ends(
    axes: Axes, ends: Sequence[tuple[str, str, float, float]], bold: Collection[str] | None = None
) -> dict[str, Annotation]:
    """Write each line's name at its end, without overlaps, and return the annotations by name.

    The axes must have a `head`, which computes their layout. `ends` are the name, the color and the last point of each
    line. The names in `bold` are bold; with None, all names are bold.
    """
    _ARRANGED.discard(axes.get_figure(root=True))  # the names need room
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height / axes.figure.dpi * 72
    ends = sorted(ends, key=lambda end: end[3])
    heights = apart([end[3] for end in ends], 11 * (high - low) / points, low, high)
    written: dict[str, Annotation] = {}
    for (name, color, x, y), height in zip(ends, heights, strict=True):
        moved = abs(height - y) > 2 * (high - low) / points
        leader = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 2, "relpos": (0, 0.5), "color": color}
        place: Any = {"xy": (x, y), "xytext": (1.025, height), "textcoords": axes.get_yaxis_transform(), "va": "center"}
        look: Any = {"color": readable(color), "fontweight": "bold" if bold is None or name in bold else "normal"}
        arrow: Any = leader if moved else None
        written[name] = axes.annotate(name, **place, **look, arrowprops=arrow, annotation_clip=False)
    return written


def apart(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return ascending values, moved as little as possible in least squares so that they are at least `gap` apart.

    The results are between `low` and `high`. If there is not enough room, they exceed `high`.
    """
    from scipy.optimize import isotonic_regression

    steps = gap * np.arange(len(values))
    free = np.maximum(np.minimum(values, high - steps[::-1]), low + steps) - steps
    return list(map(float, isotonic_regression(free).x + steps))


def saved(figure: Figure, kind: str) -> bytes:
    """Return the figure as a ``png`` or ``pdf`` file; see `svg_file` for SVG."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, dpi=DPI)
    return buffer.getvalue()


def preview(figure: Figure) -> bytes:
    """Return the figure as PNG on white with the ratio 386:300, because kedro-viz stretches images to this ratio."""
    from PIL import Image, ImageOps

    buffer = io.BytesIO(saved(figure, "png"))
    image = Image.open(buffer).convert("RGB")
    height = max(image.height, round(image.width * 300 / 386))
    shape = (max(image.width, round(height * 386 / 300)), height)
    ImageOps.pad(image, shape, color=PAPER).save(buffer := io.BytesIO(), format="png", compress_level=1)
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> str:
    """Return the figure as an ``svg`` element with text as text and a transparent background.

    The ids of its parts begin with `name`, which must be unique in a page.
    """
    buffer = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with style(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "path.simplify": False}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' id="image\w+"', "", text)  # nothing refers to these ids, and equal images have equal ones
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)


def svg_file(element: str) -> str:
    start = element.index(">") + 1
    paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element[:start]}\n{paper}{element[start:]}'


def svg_on_page(element: str) -> str:
    """Return an element of `svg` for a page that may be dark.

    `TOKENS` become CSS variables. Every other color is mixed with white by the share ``--lift`` of the page.
    """
    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", _on_page, element)


def _on_page(color: re.Match[str]) -> str:
    known = TOKENS.get(color[0])
    return f"var(--{known})" if known else f"color-mix(in oklab, {color[0]}, white var(--lift))"
