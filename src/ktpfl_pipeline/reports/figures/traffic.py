"""Figures of accuracy against traffic."""

from collections.abc import Mapping, Sequence
from math import hypot, log10
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.figures.base import styled
from ktpfl_pipeline.reports.numbers import three_digits
from ktpfl_pipeline.reports.style import BLUE, GRAY, MUTED, PAPER, RULE, VERMILION, look, readable
from ktpfl_pipeline.reports.words import as_text

AROUND = [(side, up) for up in (0, 7, -7, 13, -13, 20, -20, 27, -27) for side in (6, -6)]
"""Positions of a name relative to its mark, in points across and upward."""
NARROWEST = 0.04
"""The smallest range of the accuracy axis, as a fraction of 1."""


@styled
def accuracy_by_traffic(results: Sequence[MethodResult]) -> Figure:
    """Draw each method's final accuracy against what all clients sent and received, on a logarithmic axis.

    The line joins the methods that no other method equals in accuracy with less traffic. A method that sends nothing is
    a horizontal line.
    """
    figure, axes = base.single(3.7)
    handles = _scatter(axes, results)
    axes.set_xlabel("Traffic of all clients over the whole run (MB)")
    lines = {name: handle for name, handle in handles.items() if handle.get_linestyle() != "None"}
    base.head(axes, "Mean accuracy of the clients", lines)
    _name(axes, results, handles)
    return figure


@styled
def traffic_panels(columns: Mapping[str, Sequence[MethodResult]]) -> Figure:
    """Draw accuracy against traffic in one panel per comparison, with one legend for all panels."""
    figure, panels = base.grid_of_panels(list(columns), min(2, len(columns)), 2.4, 44, above=0.5)
    handles: dict[str, Any] = {}
    for axes, results in zip(panels, columns.values(), strict=True):
        handles |= _scatter(axes, results)
        axes.set_xlabel("MB")
    base.legend_above(figure, handles, 4)
    return figure


KINDS = {
    "Data": (("public_down",), GRAY),
    "Parameters": (("parameters_up", "parameters_down"), VERMILION),
    "Soft predictions": (("knowledge_up", "knowledge_down"), BLUE),
}
"""The kinds of traffic in Figure 5 of the paper, with their keys in a result's `traffic` and their colors."""


def by_kind(result: MethodResult) -> dict[str, float]:
    """Return the bytes of all clients and rounds by `KINDS`, averaged over seeds."""
    return {kind: sum(result.traffic[name] for name in ledgers) for kind, (ledgers, _) in KINDS.items()}


@styled
def bytes_panels(columns: Mapping[str, Sequence[MethodResult]]) -> Figure:
    """Draw the bytes of each method by `KINDS` as parts of a bar, in one panel per column."""
    figure, panels = base.grid_of_panels(list(columns), min(2, len(columns)), 1.7, 44, above=0.4)
    handles: dict[str, Any] = {}
    for axes, results in zip(panels, columns.values(), strict=True):
        ends = [0.0] * len(results)
        for kind, (_, color) in KINDS.items():
            sizes = [by_kind(result)[kind] / 1e6 for result in results]
            handles[kind] = axes.barh(range(len(results)), sizes, left=ends, height=0.6, color=color)
            ends = [end + size for end, size in zip(ends, sizes, strict=True)]
        for place, end in enumerate(ends):
            axes.annotate(three_digits(end), (end, place), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(results)), [result.title for result in results])
        axes.invert_yaxis()
        axes.margins(x=0.14)
        axes.set_xlabel("MB")
        base.plain(axes, grid="x")
    base.legend_above(figure, handles, 3)
    return figure


@styled
def accuracy_by_bytes(variants: Sequence[Comparison]) -> Figure:
    """Draw each method's final accuracy, ± its standard deviation over seeds, against the bytes of sent predictions.

    At each value, whose name is above the axes, methods are slightly apart. A method without predictions is a
    horizontal line.
    """
    figure, axes = base.single(4.4)
    methods = list(variants[0].methods)
    senders = [method for method in methods if variants[0].methods[method].predictions]
    handles: dict[str, Any] = {}
    for method in methods:
        found, (color, marker) = [variant.methods[method] for variant in variants], look(method)
        if method in senders:
            shift = 1.035 ** (senders.index(method) - (len(senders) - 1) / 2)
            across = [shift * result.predictions / 1e6 for result in found]
            finals = [result.final[AFTER_TRANSFER] for result in found]
            spread: Any = [final.seed_std or 0.0 for final in finals]
            style: Any = {"color": color, "marker": marker, "markersize": 6, "linestyle": "none", "elinewidth": 1.2}
            edge: Any = {"markeredgecolor": PAPER, "markeredgewidth": 0.4, "zorder": 3}
            handles[found[0].title] = axes.errorbar(across, [final.mean for final in finals], spread, **style, **edge)
        else:
            line = axes.axhline(found[0].final[AFTER_TRANSFER].mean, color=color, linewidth=1.2, linestyle=base.DASHES)
            handles[f"{found[0].title} (sends none)"] = line
    axes.set_xlabel("Predictions of all clients over the whole run, up and down (MB)")
    axes.set_ylabel("Mean accuracy of the clients")
    base.percent_up(axes)
    base.legend_above(figure, handles, 4)
    if senders:
        base.decades_across(axes)
        axes.margins(x=0.08, y=0.1)
        _name_values(axes, {as_text(p.value): fmean(p.methods[m].predictions for m in senders) for p in variants})
    return figure


def _name_values(axes: Axes, sizes: Mapping[str, float]) -> None:
    """Write each value's name above the axes, without overlaps, with a line down to its bytes."""
    base.arrange(axes)
    left, right = (log10(end) for end in axes.get_xlim())
    width = axes.get_window_extent().width / axes.figure.dpi * 72
    ordered = sorted(sizes.items(), key=lambda pair: pair[1])
    at = [(log10(size / 1e6) - left) / (right - left) for _, size in ordered]
    for (name, size), here in zip(ordered, base.apart(at, 11 / width, 0.0, 1.0), strict=True):
        axes.axvline(size / 1e6, color=RULE, linewidth=0.7, zorder=0)
        arrow: Any = {"arrowstyle": "-", "color": RULE, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
        place: Any = {"xytext": (here, 1.05), "textcoords": "axes fraction", "rotation": 60, "va": "bottom"}
        axes.annotate(name, (size / 1e6, 1.0), xycoords=axes.get_xaxis_transform(), arrowprops=arrow, **place)


def frontier(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the methods that no other method equals in accuracy with less traffic, by traffic; of ties, the first."""
    found: list[MethodResult] = []
    for result in sorted(results, key=lambda result: (result.sent, -result.final[AFTER_TRANSFER].mean)):
        if not found or result.final[AFTER_TRANSFER].mean > found[-1].final[AFTER_TRANSFER].mean:
            found.append(result)
    return found


def on_line(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the methods that the line joins: the frontier's methods with traffic, or none if there is only one."""
    found = [result for result in frontier(results) if result.sent]
    return found if len(found) > 1 else []


def _scatter(axes: Axes, results: Sequence[MethodResult]) -> dict[str, Any]:
    """Draw the methods and the line, and return the legend entries."""
    handles: dict[str, Any] = {}
    if best := on_line(results):
        across, upward = zip(*((result.sent / 1e6, result.final[AFTER_TRANSFER].mean) for result in best), strict=True)
        (line,) = axes.plot(across, upward, color=MUTED, linewidth=0.9, drawstyle="steps-post", zorder=1)
        handles["most accurate for its traffic"] = line
    for result in results:
        mean, (color, marker) = result.final[AFTER_TRANSFER].mean, look(result.method)
        if result.sent:
            edge: Any = {"markeredgecolor": PAPER, "markeredgewidth": 0.4, "markersize": 7, "linestyle": "none"}
            (handle,) = axes.plot([result.sent / 1e6], [mean], marker=marker, color=color, zorder=3, **edge)
        else:
            handle = axes.axhline(mean, color=color, linewidth=1.2, linestyle=base.DASHES, zorder=2)
        handles[result.title if result.sent else f"{result.title} (sends nothing)"] = handle
    if some := [result.sent for result in results if result.sent]:
        spread = max(some) / min(some)  # with equal ones, the axis has ten times the least
        base.decades_across(axes, range(1, 10) if 1 < spread < 3 else (1, 2, 5) if spread < 300 else (1,))
        axes.margins(x=0.12, y=0.1)
    else:
        axes.set_xticks([])
    low, high = axes.get_ylim()
    room = max(0.0, NARROWEST - (high - low)) / 2
    axes.set_ylim(low - room, high + room)
    _part(axes, [handles[result.title] for result in results if result.sent])
    base.percent_up(axes)
    return handles


def _part(axes: Axes, marks: Sequence[Any]) -> None:
    """Move overlapping marks sideways by half of their size, so that all marks are visible."""
    base.arrange(axes)
    step, taken = 3.5 * axes.figure.dpi / 72, list[tuple[float, float]]()
    for mark in marks:
        x, y = axes.transData.transform((mark.get_xdata()[0], mark.get_ydata()[0]))
        places = [x + side * step * n for n in range(len(marks) + 1) for side in ((1,) if n == 0 else (1, -1))]
        free = next(at for at in places if all(hypot(at - x0, y - y0) > 0.9 * step for x0, y0 in taken))
        taken.append((free, y))
        if free != x:
            mark.set_xdata([axes.transData.inverted().transform((free, y))[0]])


def _name(axes: Axes, results: Sequence[MethodResult], handles: Mapping[str, Any]) -> None:
    """Write each method's name and traffic next to its mark, where it covers the smallest part of marks and names.

    The axes must have a `head`, which computes their layout.
    """
    shown = sorted((result for result in results if result.sent), key=lambda result: -result.final[AFTER_TRANSFER].mean)
    places = [(handles[result.title].get_xdata()[0], result.final[AFTER_TRANSFER].mean) for result in shown]
    marks, frame, taken = axes.transData.transform(places or [(1, 0)]), axes.get_window_extent(), list[Any]()
    for result, place in zip(shown, places, strict=True):
        text, color = f"{result.title}, {three_digits(result.sent / 1e6)}", readable(look(result.method).color)
        note = axes.annotate(text, place, (0, 0), "data", "offset points", va="center", color=color, fontsize=7.5)
        note.set_in_layout(False)

        def covers(moved: tuple[int, int], note: Any = note) -> tuple[float, int]:
            note.set(position=moved, ha="left" if moved[0] > 0 else "right")
            box = note.get_window_extent()
            clear = frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1
            covered = sum(map(box.overlaps, taken)) + sum(box.contains(*mark) for mark in marks)
            return covered + (not clear), abs(moved[1])

        covers(min(AROUND, key=covers))
        taken.append(note.get_window_extent())
