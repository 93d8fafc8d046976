"""Accuracy by round, over the clients, and of each client."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult, local_only, subject
from ktpfl_pipeline.analysis.statistics import mean_by_place
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.figures.base import WIDTH, styled
from ktpfl_pipeline.reports.numbers import points
from ktpfl_pipeline.reports.style import INK, MUTED, NAMED, PAPER, architecture_title, look
from ktpfl_pipeline.reports.words import transfer

FEW = 4
"""Methods up to which a figure shows everything of each; with more, only of the emphasised two."""
_DASHED: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (4, 2.5))}


@styled
def accuracy_curves(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw the mean accuracy over clients and seeds by round: solid at the round's end, dashed after local training.

    Bands are ranges over seeds. The report's subject and local-only are thick; with more than `FEW` methods, only these
    two have dashed lines and bands.
    """
    figure, axes = base.single(width, max(0.3 * width + 1.4, 0.16 * len(results) + 1.7))
    main, ends = emphasised(results), []
    handles: dict[str, Any] = {f"after {transfer(results)}": Line2D([], [], color=MUTED, linewidth=2)}
    for place, result in enumerate(results):
        full = result in main or len(results) <= FEW
        _curve(axes, result, result in main, full, place)
        curve, before, colour = result.curve[HEADLINE], result.curve.get("after_local"), look(result.method).colour
        ends.append((result.title, colour, float(curve.rounds[-1]), mean_by_place(curve.by_seed)[-1]))
        if full and before is not None and before.by_seed != curve.by_seed:
            few = {"marker": "o", "markersize": 4, "markerfacecolor": PAPER} if len(before.rounds) < 4 else {}
            axes.plot(before.rounds, mean_by_place(before.by_seed), color=colour, zorder=2, **{**_DASHED, **few})
            handles["after local training"] = Line2D([], [], color=MUTED, **_DASHED)
    handles |= base.range_of(max(len(result.seeds) for result in results))
    base.rounds_across(axes)
    axes.set_xlabel("Round")
    if len(curve.rounds) == 1:
        axes.set_xticks(curve.rounds)
    axes.margins(x=0.01)
    base.head(axes, "Mean accuracy of the clients", handles)
    base.label_ends(axes, ends, bold=[result.title for result in main])
    return figure


@styled
def accuracy_panels(columns: Mapping[str, Sequence[MethodResult]], width: float = WIDTH) -> Figure:
    """Draw the same, one panel a comparison, without dashed lines; more bands than two would hide the lines."""
    figure, panels = base.grid_of_panels(list(columns), min(2, len(columns)), (width, 2.5), 44, above=0.4)
    handles: dict[str, Any] = {}
    for axes, results in zip(panels, columns.values(), strict=True):
        main = emphasised(results)
        for place, result in enumerate(results):
            handles.setdefault(result.title, _curve(axes, result, result in main, result in main, place))
        base.rounds_across(axes)
        axes.set_xlabel("Round")
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=5, handlelength=1.6)
    return figure


def _curve(axes: Axes, result: MethodResult, strong: bool, ranged: bool, place: int) -> Line2D:
    """Draw the accuracy at the end of the rounds, and the range over seeds if `ranged`; `place` shifts the markers."""
    curve, (colour, marker) = result.curve[HEADLINE], look(result.method)
    step = max(1, len(curve.rounds) // 6)  # some six markers, not at the places of the neighbours', and one at the end
    edge: Any = {"marker": marker, "markersize": 4, "markeredgecolor": PAPER, "markeredgewidth": 0.4}
    drawn: Any = {"color": colour, "linewidth": 2 if strong else 1, "zorder": 4 if strong else 3, **edge}
    shown = [*range(place % step, len(curve.rounds) - 1, step), len(curve.rounds) - 1]
    means = mean_by_place(curve.by_seed)
    (line,) = axes.plot(curve.rounds, means, label=result.title, markevery=shown, **drawn)
    if ranged:
        base.band(axes, curve.rounds, curve.by_seed, colour)
    return line


def emphasised(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the methods that figures draw thick: the report's subject, and local-only."""
    local = local_only(results)
    return [subject(results), *([local] if local and local is not subject(results) else [])]


@styled
def spread_over_clients(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw every client's accuracy by round, mean over seeds, their middle half and their mean, one panel a method."""
    across = min(3 if len(results) <= 6 else 5, len(results))
    size = (width, (0.84 * width / across if across == 5 else 0.28 * width) + 0.4)
    titles = [result.title for result in results]
    figure, panels = base.grid_of_panels(titles, across, size, 34 if across <= 3 else 16, sharex=True, sharey=True)
    for place, (axes, result) in enumerate(zip(panels, results, strict=True)):
        colour = look(result.method).colour
        rounds, accuracy = result.client_curves(HEADLINE)
        values = np.array(accuracy)  # (rounds, N)
        dots: dict[str, Any] = {"marker": "o", "markersize": 3} if len(rounds) < 4 else {}
        axes.plot(rounds, values, color=colour, linewidth=0.5, alpha=0.35, zorder=2)
        axes.fill_between(rounds, *np.quantile(values, (0.25, 0.75), axis=1), color=colour, alpha=0.2, linewidth=0)
        axes.plot(rounds, values.mean(axis=1), color=colour, linewidth=2, zorder=3, **dots)
        base.rounds_across(axes, "auto" if across <= 3 else 4)
        if place >= len(results) - across:  # nothing is below it
            axes.set_xlabel("Round")
            axes.tick_params(labelbottom=True)
    return figure


@styled
def client_accuracy(results: Sequence[MethodResult], width: float = WIDTH) -> Figure:
    """Draw each client's final accuracy with every method, one row a client.

    With local-only among the methods, the rows are sorted by what the report's subject gains over it, a bar joins the
    two, and the gain stands at the right.
    """
    main, local = subject(results), local_only(results)
    beside = None if local is main else local
    n = main.clients
    after = main.final[HEADLINE].per_client
    before = beside.final[HEADLINE].per_client if beside else [0.0] * n
    order = sorted(range(n), key=lambda client: (before[client] - after[client], client))
    named = n <= NAMED
    figure, axes = base.single(width, (0.185 * n if named else 5.0) + 1.1)
    rows, scale = list(range(n)), 1 if named else 0.5
    for row, client in zip(rows, order, strict=True) if beside else ():
        gained = after[client] >= before[client]
        colour = look(main.method).colour if gained else MUTED
        axes.plot([before[client], after[client]], [row, row], color=colour, alpha=0.3, linewidth=3 * scale, zorder=1)
        if named:
            _right_of(axes, row, str(points(after[client] - before[client])), INK if gained else MUTED)
    lines = {}
    for result in sorted(results, key=lambda result: (result is main, result is local)):
        colour, marker = look(result.method)
        face, edge, rim = (PAPER, colour, 1.3) if result is local else (colour, PAPER, 0.4)
        size = 6.5 if result is main or result is local else 5.5
        drawn: Any = {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": rim * scale}
        drawn |= {"linestyle": "none", "marker": marker, "color": colour, "markersize": size * scale}
        final = [result.final[HEADLINE].per_client[client] for client in order]
        (lines[result.title],) = axes.plot(final, rows, label=result.title, zorder=3 if result is main else 2, **drawn)
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks(rows if named else [], [client_title(main, client) for client in order] if named else [])
    if not named:
        axes.set_ylabel(f"{n} clients" + (", largest gain at the top" if beside else ""))
    axes.xaxis.set_major_formatter(base.PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10]))
    base.plain(axes, grid="x")
    if beside and named:
        _right_of(axes, -0.75, f"{main.title} −\n{beside.title}", MUTED, va="bottom")
    title = f"Final accuracy of each client, after {transfer(results)}"
    base.head(axes, title, {result.title: lines[result.title] for result in results})
    return figure


def client_title(result: MethodResult, client: int) -> str:
    """Return what a client is called in figures: its architecture and its number."""
    return f"{architecture_title(result.runs[0].architectures[client])} {client}"


def _right_of(axes: Axes, row: float, text: str, colour: str, va: Any = "center_baseline") -> None:
    axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), color=colour, fontsize=8, va=va)
