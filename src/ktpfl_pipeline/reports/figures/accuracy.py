"""Accuracy by round, over the clients, and of each client."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import mean_by_place
from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.figures.base import styled
from ktpfl_pipeline.reports.numbers import signed
from ktpfl_pipeline.reports.style import GRAY, INK, MUTED, NAMED, PAPER, RULE, architecture_title, look

FEW = 4
"""The largest number of methods that a figure shows in full. With more, it shows only `Comparison.chief` in full."""
Results = Comparison | MethodResult | Sequence[MethodResult]
_DASHED: dict[str, Any] = {"linewidth": 1, "linestyle": base.DASHES}


@styled
def accuracy_curves(results: Results) -> Figure:
    """Draw the mean accuracy over clients and seeds by round: solid at the round's end, dashed after local training.

    Bands are ranges over seeds. The `Comparison.chief` methods have thick lines. With more than `FEW` methods, only
    these have colors, dashed lines and bands. The rounds that enter the final value are shaded, except with early
    stopping, where they differ between runs. The parts of one method have group ids that end in its position:
    ``line--0``, ``band--0``, ``before--0``, ``name--0``.
    """
    results = Comparison.of(results)
    figure, axes = base.single(max(3.5, 0.16 * len(results) + 1.7))
    main, ends = results.chief, []
    parts: list[tuple[Any, str]] = []
    handles: dict[str, Any] = {"after transfer": Line2D([], [], color=MUTED, linewidth=2)}
    for place, result in enumerate(results):
        full = result in main or len(results) <= FEW
        curve, before = result.curve[AFTER_TRANSFER], result.curve.get(AFTER_LOCAL)
        color = look(result.method).color if full else GRAY
        line, *band = _curve(axes, result, result in main, full, place, color)
        parts += [(line, f"line--{place}"), *((each, f"band--{place}") for each in band)]
        ends.append((result.title, color, float(curve.rounds[-1]), mean_by_place(curve.by_seed)[-1]))
        if full and before is not None and before.by_seed != curve.by_seed:
            few = {"marker": "o", "markersize": 4, "markerfacecolor": PAPER} if len(before.rounds) < 4 else {}
            drawn: dict[str, Any] = {"color": color, "zorder": 2, **_DASHED, **few}
            parts += [(axes.plot(before.rounds, mean_by_place(before.by_seed), **drawn)[0], f"before--{place}")]
            handles["after local training"] = Line2D([], [], color=MUTED, **_DASHED)
    handles |= base.range_of(max(len(result.seeds) for result in results))
    rounds = sorted({t for result in results for t in result.curve[AFTER_TRANSFER].rounds})
    runs = list(results.runs)
    first, last = min(run.counted[0].round for run in runs), rounds[-1]
    if first > rounds[0] and all(run.patience is None for run in runs):
        begin = min(first, last - 0.5)  # a single round is visible too
        axes.axvspan(begin, last, color=RULE, alpha=0.4, linewidth=0, zorder=0)
        handles["rounds of the final value"] = Patch(color=RULE, alpha=0.4, linewidth=0)
    base.rounds_across(axes)
    axes.set_xlabel("Round")
    if len(rounds) == 1:
        axes.set_xticks(rounds)
    axes.margins(x=0.01)
    base.head(axes, "Mean accuracy of the clients", handles)
    names = base.label_ends(axes, ends, bold=[result.title for result in main])
    for place, result in enumerate(results):
        parts += [(names[result.title], f"name--{place}"), (names[result.title].arrow_patch, f"leader--{place}")]
    for artist, identity in parts:
        if artist is not None:  # a name next to its line has no leader
            artist.set_gid(identity)
    return figure


@styled
def accuracy_panels(columns: Mapping[str, Results]) -> Figure:
    """Draw accuracy by round in one panel per comparison, with all methods in color and without dashed lines.

    The subject of each comparison's report and local-only have thick lines and bands.
    """
    figure, panels = base.grid_of_panels(list(columns), min(2, len(columns)), 2.5, 44, above=0.4)
    handles: dict[str, Any] = {}
    for axes, results in zip(panels, columns.values(), strict=True):
        comparison = Comparison.of(results)
        for place, result in enumerate(comparison):
            main = result in (comparison.main, comparison.local)
            drawn = _curve(axes, result, main, main, place, look(result.method).color)
            handles.setdefault(result.title, drawn[0])
        base.rounds_across(axes)
        axes.set_xlabel("Round")
    base.legend_above(figure, handles, 5)
    return figure


def _curve(axes: Axes, result: MethodResult, strong: bool, ranged: bool, place: int, color: str) -> list[Any]:
    """Draw the accuracy at the end of the rounds, and the range over seeds if `ranged`; `place` shifts the markers."""
    curve, marker = result.curve[AFTER_TRANSFER], look(result.method).marker
    step = max(1, len(curve.rounds) // 6)  # about six markers, not where other lines have theirs, and one at the end
    edge: Any = {"marker": marker, "markersize": 4, "markeredgecolor": PAPER, "markeredgewidth": 0.4}
    drawn: Any = {"color": color, "linewidth": 2 if strong else 1, "zorder": 4 if strong else 3, **edge}
    shown = [*range(place % step, len(curve.rounds) - 1, step), len(curve.rounds) - 1]
    means = mean_by_place(curve.by_seed)
    lines = axes.plot(curve.rounds, means, label=result.title, markevery=[] if color == GRAY else shown, **drawn)
    return [*lines, *(base.band(axes, curve.rounds, curve.by_seed, color) if ranged else ())]


@styled
def spread_over_clients(results: Sequence[MethodResult]) -> Figure:
    """Draw every client's accuracy by round, averaged over seeds, in one panel per method.

    A panel also shows the middle half of the clients and their mean. All panels have one axis. The axis starts at a
    value that 99 % of the accuracies from the second round on exceed.
    """
    across = min(3 if len(results) <= 6 else 5 if len(results) <= 30 else 6, len(results))
    titles = [result.title for result in results]
    height = 2.36 if across <= 3 else 1.75
    figure, panels = base.grid_of_panels(titles, across, height, 34 if across <= 3 else 80 // across, sharey=True)
    curves = [result.client_curves(AFTER_TRANSFER) for result in results]
    later = np.concatenate([np.ravel(accuracy[1:] or accuracy) for _, accuracy in curves])
    later = later[np.isfinite(later)]  # real clients that were never measured are NaN
    for place, (axes, result, (rounds, accuracy)) in enumerate(zip(panels, results, curves, strict=True)):
        color = look(result.method).color
        values = np.array(accuracy)  # (rounds, N)
        dots: dict[str, Any] = {"marker": "o", "markersize": 3} if len(rounds) < 4 else {}
        axes.plot(rounds, values, color=color, linewidth=0.5, alpha=0.35, zorder=2)
        axes.fill_between(rounds, *np.nanquantile(values, (0.25, 0.75), axis=1), color=color, alpha=0.2, linewidth=0)
        means = mean_by_place(result.curve[AFTER_TRANSFER].by_seed)  # without adversaries
        axes.plot(rounds, means, color=color, linewidth=2, zorder=3, **dots)
        base.rounds_across(axes, "auto" if across <= 3 else 4)
        axes.tick_params(labelleft=place % across == 0)
    panels[0].set_ylim(np.floor(10 * np.quantile(later, 0.01)) / 10, min(1.02, later.max() + 0.03))
    figure.supxlabel("Round", fontsize=8, color=MUTED)
    return figure


@styled
def client_accuracy(results: Results) -> Figure:
    """Draw each client's final accuracy with every method, one row per client: the chief methods in color, others gray.

    With local-only among the methods, the rows are sorted by the difference of the report's subject to local-only. A
    bar connects both accuracies, and the difference is at the right.
    """
    results = Comparison.of(results)
    main, local = results.main, results.local
    beside = None if local is main else local
    n = main.clients
    after = main.final[AFTER_TRANSFER].per_client
    before = beside.final[AFTER_TRANSFER].per_client if beside else [0.0] * n
    lost = [own - then for own, then in zip(before, after, strict=True)]  # NaN: a real client that was never measured
    order = sorted(range(n), key=lambda client: (math.isnan(lost[client]), lost[client], client))
    named = n <= NAMED
    figure, axes = base.single((0.185 * n if named else 5.0) + 1.1)
    rows, scale = list(range(n)), 1 if named else 0.5
    for row, client in zip(rows, order, strict=True) if beside else ():
        if math.isnan(lost[client]):
            continue
        gained = after[client] >= before[client]
        color = look(main.method).color if gained else MUTED
        axes.plot([before[client], after[client]], [row, row], color=color, alpha=0.3, linewidth=3 * scale, zorder=1)
        if named:
            _right_of(axes, row, str(signed(after[client] - before[client])), INK if gained else MUTED)
    lines: dict[str, Any] = {}
    some = results.chief if len(results) > FEW else results.results
    for result in sorted(results, key=lambda result: (result in some, result is main, result is local)):
        color, marker = look(result.method) if result in some else (GRAY, "|")
        face, edge, rim = (PAPER, color, 1.3) if result is local else (color, PAPER, 0.4)
        if result not in some:
            edge, rim = color, 0.9
        drawn: Any = {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": rim * scale}
        drawn |= {"linestyle": "none", "marker": marker, "color": color, "markersize": 6.5 * scale}
        final = [result.final[AFTER_TRANSFER].per_client[client] for client in order]
        title = result.title if result in some else "the other methods"
        (lines[title],) = axes.plot(final, rows, label=result.title, zorder=3 if result is main else 2, **drawn)
    axes.set_ylim(n - 0.4, -0.6)
    axes.set_yticks(rows if named else [], [client_title(main, client) for client in order] if named else [])
    if not named:
        axes.set_ylabel(f"{n} clients" + (", largest gain at the top" if beside else ""))
    axes.xaxis.set_major_formatter(base.PERCENT)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10]))
    base.plain(axes, grid="x")
    if beside and named:
        _right_of(axes, -0.75, f"{main.title} −\n{beside.title}", MUTED, va="bottom")
    base.head(axes, "Final accuracy of each client, after transfer", dict(reversed(lines.items())))
    return figure


def client_title(result: MethodResult, place: int) -> str:
    """Return the title of the client at a position, like `title_in`; its position is its number if seeds differ."""
    first, *others = result.runs
    if all((run.names, run.client_ids) == (first.names, first.client_ids) for run in others):
        return title_in(first, place)
    return f"{architecture_title(first.architectures[place])} {place}"


def title_in(run: FinishedRun, place: int) -> str:
    """Return a client's title in figures: its architecture, and its name, or its id if it has no name."""
    name = base.shortened(str(run.client_names[place]))
    return f"{base.shortened(architecture_title(run.architectures[place]))} {name}"


def _right_of(axes: Axes, row: float, text: str, color: str, va: Any = "center_baseline") -> None:
    axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), color=color, fontsize=8, va=va)
