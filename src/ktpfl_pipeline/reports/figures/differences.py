"""Figures of the methods' differences to local-only training, and of their ranks over comparisons."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.ranking import ERROR, Ranking
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import Difference
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports.figures.base import head, plain, single, styled
from ktpfl_pipeline.reports.numbers import interval, signed
from ktpfl_pipeline.reports.style import INK, MUTED, PAPER, VERDICTS, look, readable
from ktpfl_pipeline.reports.words import in_measure, too_few

NO_INTERVAL = ("no interval", MUTED)
"""The verdict with too few seeds for an interval, and its color."""
GAP = 8
"""The space next to the axes, in typographic points."""
FAR = 4
"""Differences larger than this multiple of the median difference are drawn at the edge, next to their numbers."""


@styled
def differences(results: Comparison | Sequence[MethodResult]) -> Figure:
    """Draw each method's difference to local-only with its corrected interval and its number, the highest at the top.

    Raises ValueError without local-only, or without another method that has a seed in common with it.
    """
    comparison = Comparison.of(results)
    gains = comparison.gains(comparison.headline)
    own = [(comparison.methods[name].title, each) for name, each in gains.items() if each]
    if not own:
        raise ValueError("Differences to local-only need local-only and another method with a seed in common.")
    return _drawn({"": own}, comparison.headline, comparison.main.title)


@styled
def differences_by_value(groups: Mapping[str, Sequence[tuple[str, Difference]]], headline: str) -> Figure:
    """Draw titles of methods with their differences to local-only, in one group for each value of a setting.

    `headline` is the metric in which methods differ.
    """
    return _drawn(groups, headline)


def _drawn(groups: Mapping[str, Sequence[tuple[str, Difference]]], headline: str, bold: str = "") -> Figure:
    """Draw groups of differences, each with its name above it unless that is empty, and the highest at its top."""
    rows: list[tuple[str, Difference | None]] = []
    for name, own in groups.items():
        if name:
            rows.append((name, None))
        ordered = sorted(own, key=lambda pair: -pair[1].mean)
        rows.extend(ordered)
    ranked = [each for _, each in rows if each]
    figure, axes = single(0.22 * len(rows) + 1.15)
    ends = [each.ends or (each.mean, each.mean) for each in ranked]
    reach = [max(map(abs, pair)) for pair in ends]
    limit = 1.08 * max(min(max(reach), FAR * median(reach)), 0.005)  # of half a point at least
    axes.set_xlim(max(-limit, 1.15 * min(-0.1 * limit, *(low for low, _ in ends))), limit)
    left, right = axes.get_xlim()
    beside = list[Annotation]()
    place: Any = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    for row, (title, each) in enumerate(rows):
        if each is None:
            axes.annotate(title, (0, row), (-GAP, 0), ha="right", color=INK, fontweight="bold", **place)
            continue
        (low, high), (verdict, color) = each.ends or (each.mean, each.mean), _verdict(each)
        axes.plot([max(low, left), min(high, right)], [row, row], color=color, linewidth=2, zorder=2)
        outside = each.mean < left or each.mean > right
        look: Any = {"marker": "<" if each.mean < left else ">" if each.mean > right else "o", "markersize": 6}
        look |= {"color": color, "markerfacecolor": color if each.sign or outside else PAPER, "clip_on": False}
        axes.plot([min(max(each.mean, left), right)], [row], zorder=3, markeredgewidth=1.3, **look)
        texts = [(verdict, 1, "left", color), (str(interval(each)), 1, "left", INK), (title, 0, "right", INK)]
        weight = "bold" if title == bold else "normal"
        for text, side, ha, tint in texts:
            beside.append(
                axes.annotate(
                    text, (side, row), ((2 * side - 1) * GAP, 0), ha=ha, color=tint, fontweight=weight, **place
                )
            )
    verdicts_wide = max(note.get_window_extent().width for note in beside[::3]) * 72 / figure.dpi
    for note in beside[1::3]:  # the numbers are right of the widest verdict
        note.set_position((verdicts_wide + 2.5 * GAP, 0))
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
    axes.set(ylim=(len(rows) - 0.4, -0.6), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))  # a quarter would be rounded
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: signed(share).main))
    what = " of accuracy" if headline == AFTER_TRANSFER else in_measure(headline)
    axes.set_xlabel(f"percentage points{what}", fontsize=8)
    plain(axes, grid="x")
    verdicts = [_verdict(each) for each in ranked]
    handles: dict[str, Any] = {
        f"{verdict[0]} ({verdicts.count(verdict)})": Line2D([], [], color=verdict[1], linewidth=2)
        for verdict in (*VERDICTS.values(), NO_INTERVAL)
        if verdict in verdicts
    }
    corrected = "Holm-corrected" if any(each.family > 1 for each in ranked) else "95\N{NO-BREAK SPACE}% interval"
    which = corrected if any(each.ends for each in ranked) else too_few(max(each.seeds for each in ranked))
    head(axes, f"Difference to local-only, {which}", handles)
    return figure


def _verdict(difference: Difference) -> tuple[str, str]:
    return VERDICTS[difference.sign] if difference.ends else NO_INTERVAL


@styled
def critical_differences(ranking: Ranking) -> Figure:
    """Draw the average ranks, the best at the left. A bar joins methods that do not differ by Nemenyi's test."""
    import scikit_posthocs  # here: it brings statsmodels and seaborn, which nothing else needs

    titles = [title_of(method) for method in ranking.methods]
    colors = [readable(look(method).color) for method in ranking.methods]
    p = scikit_posthocs.posthoc_nemenyi_friedman([list(row) for row in ranking.accuracy])
    figure, axes = single(0.16 * len(titles) + 1.3)
    drawn = scikit_posthocs.critical_difference_diagram(
        dict(zip(titles, ranking.ranks, strict=True)),
        p.set_axis(titles).set_axis(titles, axis=1),
        alpha=ERROR,
        ax=axes,
        label_fmt_left="{label}  {rank:.1f} ",
        label_fmt_right=" {rank:.1f}  {label}",
        color_palette=dict(zip(titles, colors, strict=True)),
        crossbar_props={"color": INK},
    )
    for (bar,) in drawn["crossbars"]:  # whose methods are a set there, in another order in each process
        bar.set_xdata(sorted(bar.get_xdata()))
    axes.spines["top"].set_visible(True)
    return figure
