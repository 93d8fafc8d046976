"""One setting at several values: how each method's accuracy depends on it, and which value the validation data choose.

A value is chosen by the validation accuracy and by nothing else; the test accuracy at that value is then reported once.
"""

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from ktpfl_pipeline import __version__
from ktpfl_pipeline.analysis import results
from ktpfl_pipeline.analysis.results import HEADLINE, Difference, Final, MethodResult, paired_difference
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.reports import figures, looks, page, tables
from ktpfl_pipeline.reports.report import Report

if TYPE_CHECKING:
    import pandas as pd

VALIDATION = "validation"
TITLES = {
    "training.epochs": "Local epochs E",
    "distillation.epochs": "Distillation steps R",
    "methods.kt_pfl.rho": "ρ",
    "public.batch": "Public images a round |D_r|",
    "public.source": "Public data",
    "adversaries.share": "Share of adversaries",
}
"""What the settings of the paper's tables are called; another is called by its path."""
TRUST = "Weight on adversaries"
ANY = "any"
"""The value of a method that the setting does not touch."""
DECADE = 10
"""Positive values that span as much are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Point:
    """A sweep at one value.

    Attributes:
        value: of the swept setting.
        settings: what all methods share there.
        methods: what came out, by registry name.
    """

    value: Any
    settings: dict[str, Any]
    methods: dict[str, MethodResult]


@dataclass(frozen=True)
class Row:
    """One method at one value.

    Attributes:
        method: its title.
        value: as it is written under conf/; `ANY` for a method that the setting does not touch.
        test: accuracy at the end of the round.
        validation: the same on validation images; None where there are none.
        minus_local: paired difference to local-only at the same value; None for local-only itself and without it.
        chosen: whether this is the method's value with the highest validation accuracy.
        result: all that is known.
    """

    method: str
    value: str
    test: Final
    validation: Final | None
    minus_local: Difference | None
    chosen: bool
    result: MethodResult


def comparable(
    name: str, content: Mapping[str, Any], sweep: Mapping[str, Any], settings: Sequence[dict[str, Any]]
) -> list[Point]:
    """Return the points of a sweep from plain values, and refuse those that were made with other settings.

    Args:
        name: the sweep's.
        content: what the runs left: ``sweep`` and ``points``.
        sweep: its settings now.
        settings: of the experiment at each value, now.

    Raises:
        InputError: naming what differs.
    """
    made = content["sweep"]
    different = sorted(entry for entry in sweep.keys() | made.keys() if sweep.get(entry) != made.get(entry))
    if different:
        changes = ", ".join(f"{entry}={made.get(entry)!r}, now {sweep.get(entry)!r}" for entry in different)
        raise InputError(
            f"The results of {name} were made with other settings ({changes}); run it again with these, or put the "
            "settings back."
        )
    found = []
    for point, now in zip(content["points"], settings, strict=True):
        own = [
            MethodResult.from_dict({**method, "settings": point["settings"]}) for method in point["methods"].values()
        ]
        comparison = results.comparable(own, now)
        found.append(Point(point["value"], now, {result.method: result for result in comparison}))
    return found


def build(name: str, parameter: str, points: Sequence[Point]) -> Report:
    """Return the report on a sweep.

    Args:
        name: the sweep's.
        parameter: path of the swept setting.
        points: the sweep at each value, in the order in which they are shown; the methods are the same at all.
    """
    title = TITLES.get(parameter, parameter)
    rows = table_rows(points)
    plates = {"accuracy": accuracy_by_value(points, title)}
    return Report(
        name=name,
        html=_html(name, parameter, points, rows, plates),
        markdown=_markdown(name, parameter, points, rows),
        latex=_latex(name, title, points, rows),
        console=_console(name, title, points, rows),
        figures=plates,
        data={"table.csv": _csv(parameter, rows)},
    )


def table_rows(points: Sequence[Point]) -> list[Row]:
    """Return the rows of the table: method by method, each at all values; once where they are the same runs."""
    rows = []
    for method in points[0].methods:
        best = chosen(points, method)
        for point in points if touched(points, method) else points[:1]:
            result, local = point.methods[method], point.methods.get("local")
            rows.append(
                Row(
                    method=result.title,
                    value=_text(point.value) if touched(points, method) else ANY,
                    test=result.final[HEADLINE],
                    validation=result.final.get(VALIDATION),
                    minus_local=None if local in (None, result) else paired_difference(result, local),
                    chosen=point is best,
                    result=result,
                )
            )
    return rows


def touched(points: Sequence[Point], method: str) -> bool:
    """Say whether the setting makes any difference to the method's test accuracy; with one point it is taken to."""
    return len(points) == 1 or len({tuple(point.methods[method].final[HEADLINE].per_seed) for point in points}) > 1


def chosen(points: Sequence[Point], method: str) -> Point | None:
    """Return the point with the method's highest validation accuracy, the first of equals.

    None where there is nothing to choose: no validation images, one value, a setting that makes no difference to the
    method, or one that decides which images the clients own or who of them is an adversary.
    """
    if len(points) == 1 or not touched(points, method) or not same_images(points) or not same_adversaries(points):
        return None
    if any(VALIDATION not in point.methods[method].final for point in points):
        return None
    return max(points, key=lambda point: point.methods[method].final[VALIDATION].mean)


def same_images(points: Sequence[Point]) -> bool:
    """Say whether the clients own as many images of each label at all points: else validation cannot compare them."""
    first, *others = [
        [run.label_counts for result in point.methods.values() for run in result.runs] for point in points
    ]
    return all(other == first for other in others)


def same_adversaries(points: Sequence[Point]) -> bool:
    """Say whether the same clients are honest at all points: how many lie is nobody's choice."""
    shares = {point.settings.get("adversaries", {}).get("share", 0.0) for point in points}
    return len(shares) == 1


def trust(row: Row) -> Difference | None:
    """Return the weight that honest clients give to adversaries, in units of 1/N, over seeds; None without a matrix."""
    return results.difference([run.trust for run in row.result.runs if run.trust is not None])


def _weight(spread: Difference | None) -> str:
    if spread is None:
        return tables.NONE
    if spread.low is None or spread.high is None:
        return f"{spread.mean:.2f}"
    return f"{spread.mean:.2f} [{spread.low:.2f}, {spread.high:.2f}]".replace("-", tables.MINUS)


def _trusted(rows: Sequence[Row]) -> bool:
    return any(run.trust is not None for row in rows for run in row.result.runs)


def table(rows: Sequence[Row], title: str) -> "pd.DataFrame":
    """Return one row for each method and value, as text."""
    import pandas as pd

    after = tables.point_title(HEADLINE, [row.result for row in rows])
    found = pd.DataFrame(
        [
            {
                "Method": row.method,
                title: row.value,
                f"{after} (%)": tables.percent(row.test.mean, row.test.seed_std),
                "Validation (%)": (
                    tables.NONE
                    if row.validation is None
                    else tables.percent(row.validation.mean, row.validation.seed_std)
                ),
                "Minus local-only (points)": tables.interval(row.minus_local),
                "Chosen": "chosen" if row.chosen else "",
                TRUST: _weight(trust(row)),
            }
            for row in rows
        ],
        dtype=object,
    )
    shown = {"Chosen": any(row.chosen for row in rows), TRUST: _trusted(rows)}
    return found.drop(columns=[column for column, wanted in shown.items() if not wanted])


def summary(points: Sequence[Point], title: str) -> str:
    """Say which value the validation data choose for each method, and what it reaches on the test data."""
    rows = table_rows(points)
    picked = [row for row in rows if row.chosen]
    if not picked:
        return f"No value of {title} was chosen: {_unchosen(points)}."
    how = tables.point_title(HEADLINE, [row.result for row in rows]).lower()
    sentences = []
    for row in picked:
        reached = f"{tables.percent(row.test.mean, row.test.seed_std)} % {how}"
        beside = "" if row.minus_local is None else f", {_stands(row.minus_local)}"
        sentences.append(f"Validation accuracy chooses {title} = {row.value} for {row.method}: {reached}{beside}.")
    for end, value in _ends(points).items():
        names = [row.method for row in picked if row.value == value]
        if names:
            sentences.append(f"{value} is the {end} value tried, so for {' and '.join(names)} the best may lie beyond.")
    one = len(picked[0].result.seeds) == 1
    return " ".join([*sentences, "With one seed this decides nothing."] if one else sentences)


def _unchosen(points: Sequence[Point]) -> str:
    """Say why no value is chosen for any method."""
    if len(points) == 1:
        return "there is only one"
    if not same_adversaries(points):
        return "it says how many clients lie, which nobody chooses. Compare by the difference to local-only"
    if not same_images(points):
        return (
            "it decides which images the clients own, so their validation accuracies are of other images. Compare by "
            "the difference to local-only"
        )
    if not any(touched(points, method) for method in points[0].methods):
        return "it made no difference to any method"
    return "there are no validation images (partition.validation_share), and test accuracy must not choose"


def _ends(points: Sequence[Point]) -> dict[str, str]:
    """Return the smallest and the largest value; nothing where they are no numbers."""
    values = [point.value for point in points]
    if not _numeric(values):
        return {}
    return {"smallest": _text(min(values)), "largest": _text(max(values))}


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def notes(rows: Sequence[Row], title: str) -> dict[str, str]:
    """Return what the columns of `table` mean, by column."""
    seeds = len(rows[0].result.seeds)
    after = tables.point_title(HEADLINE, [row.result for row in rows])
    spread = f", then over {seeds} seeds; ± is the standard deviation over seeds" if seeds > 1 else "; one seed"
    found = {
        title: f"{ANY} stands where the setting makes no difference to the method.",
        after: "each client's own model at the end of the round on that client's test images; mean over clients and "
        f"the last five evaluations{spread}.",
        "Validation": "the same on images that no client trains or is tested on.",
        "Minus local-only": "at the same value, paired by seed, with its 95 % t interval; bold where that excludes "
        "zero. The intervals are not corrected for their number, and one seed has none.",
        "Chosen": "the value with the method's highest validation accuracy. Test accuracy chooses nothing: its highest "
        "value in the table would be too good.",
    }
    if all(row.value != ANY for row in rows):
        del found[title]
    if not any(row.chosen for row in rows):
        del found["Chosen"]
    if any(run.adversaries for row in rows for run in row.result.runs):
        found["Adversaries"] = "clients that upload false predictions; no mean counts their own accuracy."
    if _trusted(rows):
        found[TRUST] = (
            "what the rows of honest clients in the final coefficient matrix give to an adversary on average, in units "
            "of 1/N, with its 95 % t interval over seeds: 1 is equal weights, 0 shuts adversaries out."
        )
    return found


@figures._styled
def accuracy_by_value(points: Sequence[Point], title: str, width: float = figures.WIDTH) -> Figure:
    """Draw each method's mean accuracy against the swept setting, with the standard deviation over seeds.

    The value that the validation data choose is ringed. Values that are no numbers stand side by side, unconnected.
    """
    figure = figures._figure(width, 0.3 * width + 1.2)
    axes = figure.add_subplot()
    values = [point.value for point in points]
    places = [float(value) for value in values] if _numeric(values) else [float(n) for n in range(len(values))]
    methods, ends = list(points[0].methods), []
    handles: dict[str, Any] = {}
    for n, method in enumerate(methods):
        apart = 0.0 if _numeric(values) else 0.08 * (n - (len(methods) - 1) / 2)
        handles |= _draw(axes, points, method, [place + apart for place in places])
        last = points[-1].methods[method]
        ends.append((last.title, looks.look(method).colour, places[-1], last.final[HEADLINE].mean))
    if _numeric(values) and min(values) > 0 and max(values) >= DECADE * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, [_text(value) for value in values])
    axes.set_xlabel(title)
    axes.margins(x=0.04 if _numeric(values) else 0.12)
    axes.yaxis.set_major_formatter(figures._PERCENT)
    figures._plain(axes, grid="y")
    figures._head(axes, "Mean accuracy of the clients", handles or {"one seed": Line2D([], [], color=looks.MUTED)})
    figures._label_ends(axes, ends)
    return figure


def _draw(axes: Axes, points: Sequence[Point], method: str, places: Sequence[float]) -> dict[str, Any]:
    """Draw one method at its places, and return what the legend says of it."""
    look, numeric = looks.look(method), _numeric([point.value for point in points])
    finals = [point.methods[method].final[HEADLINE] for point in points]
    means, own = [final.mean for final in finals], touched(points, method)
    axes.plot(
        places,
        means,
        color=look.colour,
        linewidth=2 if numeric else 0,
        linestyle="-" if own else (0, (4, 2.5)),
        marker=look.marker if own or not numeric else "",
        markersize=4.5,
        zorder=3,
    )
    handles: dict[str, Any] = {}
    if all(final.seed_std is not None for final in finals):
        low, high = ([final.mean + side * (final.seed_std or 0) for final in finals] for side in (-1, 1))
        if numeric:
            axes.fill_between(places, low, high, color=look.colour, alpha=0.15, linewidth=0)
        else:
            axes.vlines(places, low, high, color=look.colour, alpha=0.5, linewidth=1.5)
        shown = Patch(color=looks.MUTED, alpha=0.2, linewidth=0) if numeric else Line2D([], [], color=looks.MUTED)
        handles[f"± standard deviation over {len(points[0].methods[method].seeds)} seeds"] = shown
    best = chosen(points, method)
    if best is not None:
        ring: dict[str, Any] = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linewidth": 0}
        at = points.index(best)
        axes.plot([places[at]], [means[at]], markeredgecolor=look.colour, markeredgewidth=1.4, zorder=4, **ring)
        handles["chosen by validation accuracy"] = Line2D([], [], markeredgecolor=looks.MUTED, **ring)
    return handles


def run_table(points: Sequence[Point], title: str) -> "pd.DataFrame":
    """Return one row a run: its method, value, seed and accuracies, and what finds it in MLflow."""
    import pandas as pd

    found = [
        {
            "Method": result.title,
            title: _text(point.value) if touched(points, method) else ANY,
            "Seed": str(run.seed),
            "Test (%)": tables.percent(result.final[HEADLINE].per_seed[place], None),
            "MLflow run": run.run_id or tables.NONE,
            "Settings key": run.key,
        }
        for method in points[0].methods
        for point in (points if touched(points, method) else points[:1])
        for result in [point.methods[method]]
        for place, run in enumerate(result.runs)
    ]
    return pd.DataFrame(found, dtype=object)


def _stands(difference: Difference) -> str:
    return f"{tables.interval(difference).replace('**', '')} points against local-only at the same value"


def _settings(points: Sequence[Point], parameter: str) -> dict[str, str]:
    """Return what all points have in common."""
    return {name: _text(value) for name, value in flat(points[0].settings).items() if name != parameter}


def _hyperparameters(points: Sequence[Point], parameter: str) -> dict[str, dict[str, str]]:
    return {
        result.title: {
            name: _text(value)
            for name, value in result.hyperparameters.items()
            if parameter != f"methods.{method}.{name}"
        }
        for method, result in points[0].methods.items()
    }


def _facts(points: Sequence[Point], parameter: str) -> list[str]:
    settings, runs = points[0].settings, next(iter(points[0].methods.values()))
    return [
        f"{parameter}: {', '.join(_text(point.value) for point in points)}",
        f"private {settings['private']['source']}",
        *([] if same_adversaries(points) else [f"adversaries upload {settings['adversaries']['kind']} predictions"]),
        f"{runs.clients} clients, {settings['partition']['scheme'].replace('_', ' ')}",
        f"{runs.rounds} rounds",
        f"{len(runs.seeds)} seed{'s' * (len(runs.seeds) > 1)}",
    ]


def _caption(points: Sequence[Point], title: str) -> str:
    methods, seeds = points[0].methods, len(next(iter(points[0].methods.values())).seeds)
    numeric = _numeric([point.value for point in points])
    parts = [
        f"Mean test accuracy over the clients at the end of the round, by value of {title}"
        + (f"; the {'band' if numeric else 'bar'} is the standard deviation over {seeds} seeds" if seeds > 1 else "")
        + "."
    ]
    if any(chosen(points, method) for method in methods):
        parts.append("Rings mark the value that the validation images choose.")
    if numeric and not all(touched(points, method) for method in methods):
        parts.append("A dashed line does not depend on the setting.")
    return " ".join(parts)


def _html(name: str, parameter: str, points: Sequence[Point], rows: Sequence[Row], plates: Mapping[str, Figure]) -> str:
    title = TITLES.get(parameter, parameter)
    return page.render(
        "sweep.html.jinja",
        name=name,
        facts=_facts(points, parameter),
        summary=summary(points, title),
        table=Markup(tables.to_html(table(rows, title))),
        notes=notes(rows, title),
        plates={plate: Markup(figures.svg(figure, plate)) for plate, figure in plates.items()},
        caption=_caption(points, title),
        settings=_settings(points, parameter),
        hyperparameters=_hyperparameters(points, parameter),
        runs=Markup(tables.to_html(run_table(points, title))),
        version=__version__,
    )


def _markdown(name: str, parameter: str, points: Sequence[Point], rows: Sequence[Row]) -> str:
    title = TITLES.get(parameter, parameter)
    settings = "\n".join(f"{key}: {value}" for key, value in _settings(points, parameter).items())
    parts = [
        f"# {name}",
        f"**{summary(points, title)}**",
        " · ".join(_facts(points, parameter)),
        tables.to_markdown(table(rows, title)),
        "\n".join(f"- *{column}:* {text}" for column, text in notes(rows, title).items()),
        "![accuracy](figures/accuracy.png)",
        _caption(points, title),
        "## Settings",
        f"```yaml\n{settings}\n```",
        "## Runs",
        tables.to_markdown(run_table(points, title)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _latex(name: str, title: str, points: Sequence[Point], rows: Sequence[Row]) -> str:
    caption = rf"\caption{{{tables.latex_escape(summary(points, title))}}}"
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *textwrap.wrap(caption, 110, break_long_words=False, break_on_hyphens=False),
        rf"\label{{tab:{name.replace('_', '-')}}}",
        tables.to_latex(table(rows, title)).strip(),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines).replace("ρ", r"$\rho$")


def _console(name: str, title: str, points: Sequence[Point], rows: Sequence[Row]) -> str:
    shown = table(rows, title).replace(regex={r"\*\*": "", tables.MINUS: "-", tables.NONE: "-"})
    head = [name, *textwrap.wrap(summary(points, title), tables.CONSOLE), ""]
    return "\n".join([*head, shown.to_string(index=False)]) + "\n"


def _csv(parameter: str, rows: Sequence[Row]) -> str:
    text = io.StringIO()
    columns = ["method", parameter, "seeds", "test", "test_std", "validation", "validation_std"]
    writer = csv.writer(text, lineterminator="\n")
    ends = ("", "_low", "_high")
    writer.writerow([*columns, *(f"minus_local{end}" for end in ends), *(f"trust{end}" for end in ends), "chosen"])
    for row in rows:
        validation = row.validation
        writer.writerow(
            [
                *(row.result.method, row.value, len(row.result.seeds), row.test.mean, row.test.seed_std),
                *((validation.mean, validation.seed_std) if validation else (None, None)),
                *_ends_of(row.minus_local),
                *_ends_of(trust(row)),
                int(row.chosen),
            ]
        )
    return text.getvalue()


def _ends_of(spread: Difference | None) -> tuple[float | None, float | None, float | None]:
    """Return the mean and both ends of its interval, as far as there are any."""
    return (spread.mean, spread.low, spread.high) if spread else (None, None, None)


def _text(value: Any) -> str:
    """Return a setting as it is written under conf/."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
