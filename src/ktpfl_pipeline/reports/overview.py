"""All finished comparisons side by side: tables in the form of the paper's, the differences, curves and traffic.

What a comparison leaves beside its report is all that is read here. A column is a comparison: it has settings of its
own, and they are stated. Comparisons with one architecture, the paper's Table 2, have tables of their own beside those
with several, its Table 1: but for local-only they run other methods.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ktpfl_pipeline.analysis.results import HEADLINE, Difference, Final, difference
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.methods import METHODS
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports import figures, looks, page, paper, tables
from ktpfl_pipeline.reports.report import Report

if TYPE_CHECKING:
    import pandas as pd

LEDGERS = {"knowledge": looks.BLUE, "parameters": "#d55e00", "public data": "#b6bcc6"}
"""What travels, and its colour."""

CAPTIONS = {
    "accuracy": (
        "Accuracy by round",
        "Mean test accuracy over all clients and seeds at the end of each round. KT-pFL and local-only are drawn "
        "thick, with the range over seeds as a band.",
    ),
    "communication": (
        "Communication",
        "What all clients sent and received over the whole run, 1 MB = 10⁶ bytes, mean over seeds. Every panel has its "
        "own scale.",
    ),
}
"""By figure: its heading, and what it shows."""

ONE = ", one architecture"
"""What headings and titles of comparisons with one architecture end with."""

# Pairs of which every column states the difference, after each method's to local-only: KT-pFL and its simplest rival.
_RIVALS = (("kt_pfl", "sim_pfl"), ("kt_pfl_params", "fedavg_ft"))
_MAIN = ("kt_pfl", "kt_pfl_params", "local")


@dataclass(frozen=True)
class Outcome:
    """One method in one comparison.

    Attributes:
        title: the method's name in tables and figures.
        final: final accuracy at the end of the round.
        traffic: bytes by ledger over the whole run, mean over seeds.
        seeds: ascending.
        run_ids: MLflow's id of each seed's run; empty without tracking.
        rounds: those that were evaluated.
        by_seed: (seeds, rounds) mean accuracy over clients.
    """

    title: str
    final: Final
    traffic: dict[str, float]
    seeds: list[int]
    run_ids: list[str]
    rounds: list[int]
    by_seed: list[list[float]]

    def minus(self, other: "Outcome") -> Difference | None:
        """Return the paired difference over the seeds that both have; None where they have none in common."""
        theirs = dict(zip(other.seeds, other.final.per_seed, strict=True))
        mine = zip(self.seeds, self.final.per_seed, strict=True)
        return difference([value - theirs[seed] for seed, value in mine if seed in theirs])


@dataclass(frozen=True)
class Comparison:
    """One finished comparison: a column.

    Attributes:
        place: folder of its report, below that of all reports.
        settings: what its methods share.
        methods: what came out, by registry name, in the registry's order.
    """

    place: str
    settings: dict[str, Any]
    methods: dict[str, Outcome]

    @cached_property
    def dataset(self) -> str:
        """What the private data is called."""
        source = str(self.settings["private"]["source"])
        return paper.title(source)

    @cached_property
    def partition(self) -> str:
        """What the partition is called."""
        return str(self.settings["partition"]["scheme"]).replace("_", " ")

    @property
    def number_of_clients(self) -> str:
        """What tells columns of the paper's Table 2 apart."""
        return f"{self.settings['clients']} clients"

    @property
    def one_architecture(self) -> bool:
        """Whether all clients have one."""
        return paper.one_architecture(self.settings)

    @property
    def best(self) -> str | None:
        """The method that is ahead of the runner-up by a difference whose interval excludes zero."""
        ranked = sorted(self.methods, key=lambda method: -self.methods[method].final.mean)
        ahead = self.difference(*ranked[:2])
        return ranked[0] if ahead and ahead.sign > 0 else None

    def difference(self, a: str, b: str) -> Difference | None:
        """Return method `a` minus method `b`; None where one of them is missing or they have no common seed."""
        return self.methods[a].minus(self.methods[b]) if {a, b} <= self.methods.keys() else None


def overview(contents: Mapping[str, Mapping[str, Any]]) -> Report:
    """Return the report on all finished comparisons.

    Args:
        contents: what each comparison left beside its report, by the report's folder.

    Raises:
        InputError: if none of them compares two methods.
    """
    columns = titled([_read(place, content) for place, content in contents.items() if len(content["methods"]) > 1])
    if not columns:
        raise InputError(
            "There is no finished comparison to look over; run one first, for example "
            "`kedro run --pipeline=compare_hetero_digits`."
        )
    plates = {"accuracy": accuracy_panels(columns), "communication": traffic_panels(columns)}
    return Report(
        name="overview",
        html=_html(columns, plates),
        markdown=_markdown(columns),
        latex=_latex(columns),
        console=_console(columns),
        figures=plates,
    )


def titled(comparisons: Sequence[Comparison]) -> dict[str, Comparison]:
    """Return the comparisons by what their columns are called, in the order of the paper's tables.

    That is by kind, dataset and partition. A title is dataset and partition, and whether there is one architecture;
    where several have these, the number of clients, then the public data; and where that leaves some alike, the
    report's folder.
    """
    datasets = list(paper.DATASETS.values())
    partitions = ["all labels", "two labels"]

    def place(comparison: Comparison) -> tuple[Any, ...]:
        known = (comparison.dataset in datasets, comparison.partition in partitions)
        return (
            comparison.one_architecture,
            datasets.index(comparison.dataset) if known[0] else len(datasets),
            comparison.dataset,
            partitions.index(comparison.partition) if known[1] else len(partitions),
            comparison.partition,
            comparison.settings["clients"],
            comparison.place,
        )

    ordered = sorted(comparisons, key=place)
    titles = [f"{each.dataset}, {each.partition}{ONE * each.one_architecture}" for each in ordered]
    more = [
        [each.number_of_clients for each in ordered],
        [f"public {str(each.settings['public']['source']).replace('_', ' ')}" for each in ordered],
        [each.place for each in ordered],
    ]
    for additions in more:
        pairs = list(zip(titles, additions, strict=True))
        alike, same = Counter(titles), Counter(pairs)
        titles = [f"{old}, {addition}" if alike[old] > same[old, addition] else old for old, addition in pairs]
    return dict(zip(titles, ordered, strict=True))


def accuracy_table(columns: Mapping[str, Comparison]) -> "pd.DataFrame":
    """Return the methods by comparison: final accuracy in percent, and the paper's where the setting is the paper's."""
    table = {"Method": list(_methods(columns).values())}
    for title, comparison in columns.items():
        best = comparison.best
        table[f"{title} (%)"] = [
            _cell(comparison.methods.get(method), bold=method == best) for method in _methods(columns)
        ]
        numbers = {method: _paper(comparison, method) for method in comparison.methods}
        if paper.same_setting(comparison.settings) and any(numbers.values()):
            table[f"{title}: paper (%)"] = [numbers.get(method) or tables.NONE for method in _methods(columns)]
    return _frame(table)


def difference_table(columns: Mapping[str, Comparison]) -> "pd.DataFrame":
    """Return what each method gains over local-only by comparison, in points with its 95 % interval.

    The last row is KT-pFL minus its simplest rival, Sim-pFL or fine-tuned FedAvg, where one comparison has both.
    """
    names = _methods(columns)
    pairs = [(method, "local") for method in names if method != "local"] + [*_RIVALS]
    pairs = [pair for pair in pairs if any(each.difference(*pair) for each in columns.values())]
    rows = [names[a] if b == "local" else f"{names[a]} minus {names[b]}" for a, b in pairs]
    table = {"Minus local-only": rows}
    for title, comparison in columns.items():
        found = [comparison.difference(*pair) for pair in pairs]
        table[f"{title} (points)"] = [tables.interval(each) for each in found]
    return _frame(table)


def paper_table(columns: Mapping[str, Comparison]) -> "pd.DataFrame":
    """Return the paper's numbers for the data and partitions of comparisons that were made with other settings."""
    others = [each for each in columns.values() if paper.differences(each.settings)]
    shown = {
        f"{each.dataset}, {each.number_of_clients if each.one_architecture else each.partition} (%)": each
        for each in others
    }
    names = list(dict.fromkeys(paper.NAMES))
    table: dict[str, list[str]] = {"Method in the paper": []}
    for method in names:
        numbers = [_paper(each, method) for each in shown.values()]
        if any(numbers) and paper.NAMES[method] not in table["Method in the paper"]:
            table["Method in the paper"].append(paper.NAMES[method])
            for title, number in zip(shown, numbers, strict=True):
                table.setdefault(title, []).append(number or tables.NONE)
    return _frame({title: cells for title, cells in table.items() if set(cells) - {tables.NONE}})


def settings_table(columns: Mapping[str, Comparison]) -> "pd.DataFrame":
    """Return one row a comparison: the settings in which the comparisons differ."""
    given = {title: flat(each.settings) for title, each in columns.items()}
    same = common_settings(columns)
    names = [name for name in dict.fromkeys(name for one in given.values() for name in one) if name not in same]
    table = {name: [_text(one.get(name)) for one in given.values()] for name in names}
    return _frame({"Comparison": list(given), **table} if names else {})


def common_settings(columns: Mapping[str, Comparison]) -> dict[str, str]:
    """Return the settings that all comparisons have in common."""
    first, *others = [flat(each.settings) for each in columns.values()]
    missing = object()
    return {
        name: _text(value) for name, value in first.items() if all(one.get(name, missing) == value for one in others)
    }


def run_table(columns: Mapping[str, Comparison]) -> "pd.DataFrame":
    """Return one row for each method of each comparison: its accuracy with every seed, and the runs it came from."""
    rows = []
    for title, comparison in columns.items():
        for outcome in comparison.methods.values():
            for seed, accuracy, run_id in zip(outcome.seeds, outcome.final.per_seed, outcome.run_ids, strict=True):
                rows.append((title, outcome.title, tables.percent(accuracy, None), str(seed), run_id or tables.NONE))
    names = ("Comparison", "Method", "Accuracy (%)", "Seed", "MLflow run")
    return _frame({name: list(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)})


def summary(columns: Mapping[str, Comparison]) -> str:
    """Say in how many comparisons KT-pFL is above local-only, and above its simplest rival where that was run."""
    found = []
    for main, rival in _RIVALS:
        verdicts = [_verdict(columns, main, "local", "local-only"), _verdict(columns, main, rival, title_of(rival))]
        if any(verdicts):
            found.append(f"{title_of(main)} is {'; '.join(filter(None, verdicts))}: by 95 % intervals over the seeds.")
    return " ".join(found) or "No comparison holds both KT-pFL and local-only training."


@figures._styled
def accuracy_panels(columns: Mapping[str, Comparison], width: float = figures.WIDTH) -> Figure:
    """Draw the mean accuracy over clients and seeds by round, one panel a comparison.

    KT-pFL and local-only are thick and have the range over seeds as a band: thirteen bands would hide the lines.
    """
    figure, panels = _panels(columns, width, 2.5)
    handles: dict[str, Any] = {}
    for axes, comparison in zip(panels, columns.values(), strict=True):
        for method, outcome in comparison.methods.items():
            (colour, marker), main = looks.look(method), method in _MAIN
            (line,) = axes.plot(
                outcome.rounds,
                figures._mean(outcome.by_seed),
                color=colour,
                marker=marker,
                markevery=max(1, len(outcome.rounds) // 6),
                markersize=4,
                markeredgecolor=looks.PAPER,
                markeredgewidth=0.4,
                linewidth=2 if main else 1,
                zorder=3 if main else 2,
            )
            handles.setdefault(outcome.title, line)
            if main and len(outcome.by_seed) > 1:
                low, high = (list(map(extreme, zip(*outcome.by_seed, strict=True))) for extreme in (min, max))
                axes.fill_between(outcome.rounds, low, high, color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel("Round")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(figures._PERCENT)
        figures._plain(axes, grid="y")
    _legend(figure, handles)
    return figure


@figures._styled
def traffic_panels(columns: Mapping[str, Comparison], width: float = figures.WIDTH) -> Figure:
    """Draw what each method sent over its whole run in MB, by kind, one panel a comparison."""
    most = max(len(each.methods) for each in columns.values())
    figure, panels = _panels(columns, width, 0.22 * most + 0.75)
    handles: dict[str, Any] = {}
    for axes, comparison in zip(panels, columns.values(), strict=True):
        sent = [_by_kind(outcome.traffic) for outcome in comparison.methods.values()]
        rows, starts = range(len(sent)), [0.0] * len(sent)
        for kind, colour in LEDGERS.items():
            widths = [each[kind] / 1e6 for each in sent]
            bars = axes.barh(rows, widths, left=starts, height=0.7, color=colour)
            starts = [start + width for start, width in zip(starts, widths, strict=True)]
            if any(widths):
                handles.setdefault(kind, bars)
        for row, total in zip(rows, starts, strict=True):
            axes.annotate(tables.megabytes(1e6 * total), (total, row), (3, 0), textcoords="offset points", va="center")
        axes.set_yticks(rows, [outcome.title for outcome in comparison.methods.values()])
        axes.set(ylim=(most - 0.4, -0.6), xlabel="MB", xlim=(0, 1.15 * max(*starts, 1e-6)))
        figures._plain(axes, grid="x")
    _legend(figure, handles)
    return figure


def notes(columns: Mapping[str, Comparison]) -> dict[str, str]:
    """Return what the tables' entries mean, by what is explained."""
    found = {
        "Accuracy": "each client's own model at the end of the round on that client's test images; mean over clients "
        "and the last five evaluations, then over seeds; ± is the standard deviation over seeds.",
        "Bold": "the best of a column, where the 95 % t interval of its difference to the runner-up, paired by seed, "
        "excludes zero. Differences are bold where their own interval does. The intervals are not corrected for their "
        "number, and one seed has none.",
        "Columns": "comparisons may have other settings than each other; the table of settings says which. Compare "
        "methods within a column.",
    }
    differing = {title: why for title, each in columns.items() if (why := paper.differences(each.settings))}
    if len(differing) < len(columns):
        found["Paper"] = (
            "Table 1 of the paper, with the same data, partition, clients, models, epochs and batches. It states "
            "neither rounds, temperature nor evaluation point: a landmark, not a target."
        )
    if differing:
        found["Not the paper's setting"] = _list(differing, "all comparisons" if len(differing) == len(columns) else "")
    return found


def _list(differing: Mapping[str, Sequence[str]], every: str) -> str:
    """Say in what each comparison differs; what they all differ in is said once, of `every` or by their titles."""
    first, *others = differing.values()
    same = [why for why in first if all(why in other for other in others)] if others else []
    rest = {title: [why for why in own if why not in same] for title, own in differing.items()}
    common = [f"{every or ' and '.join(differing)}: {', '.join(same)}"] if same else []
    return "; ".join([*common, *(f"{title}: {', '.join(own)}" for title, own in rest.items() if own)]) + "."


def _read(place: str, content: Mapping[str, Any]) -> Comparison:
    order = list(METHODS)
    methods = {
        method: Outcome(
            title=values["title"],
            final=Final(**values["final"][HEADLINE]),
            traffic=values["traffic"],
            seeds=values["seeds"],
            run_ids=values["run_ids"],
            rounds=values["curve"][HEADLINE]["rounds"],
            by_seed=values["curve"][HEADLINE]["by_seed"],
        )
        for method, values in sorted(
            content["methods"].items(), key=lambda entry: order.index(entry[0]) if entry[0] in order else len(order)
        )
    }
    return Comparison(place, content["settings"], methods)


def _methods(columns: Mapping[str, Comparison]) -> dict[str, str]:
    """Return the titles of all methods, by registry name, in the registry's order."""
    titles = {method: outcome.title for each in columns.values() for method, outcome in each.methods.items()}
    order = list(METHODS)
    return dict(sorted(titles.items(), key=lambda entry: order.index(entry[0]) if entry[0] in order else len(order)))


def _tables(columns: Mapping[str, Comparison]) -> dict[str, "pd.DataFrame"]:
    """Return the tables by heading, without those that would be empty."""
    kinds = {"": False, ONE: True}
    groups = {
        ending: {title: each for title, each in columns.items() if each.one_architecture == one}
        for ending, one in kinds.items()
    }
    groups = {ending: group for ending, group in groups.items() if group}
    found = {
        **{f"Accuracy{ending}": accuracy_table(group) for ending, group in groups.items()},
        **{f"Differences{ending}": difference_table(group) for ending, group in groups.items()},
        "The paper's own numbers (other settings: not comparable)": paper_table(columns),
        "Settings in which the comparisons differ": settings_table(columns),
        "Runs": run_table(columns),
    }
    return {heading: table for heading, table in found.items() if len(table)}


def _last(headings: Iterable[str], kind: str) -> str:
    """Return the last heading that begins with `kind`; empty where there is none."""
    return next((heading for heading in reversed([*headings]) if heading.startswith(kind)), "")


def _html(columns: Mapping[str, Comparison], plates: Mapping[str, Figure]) -> str:
    found = _tables(columns)
    return page.render(
        "overview.html.jinja",
        name="Overview",
        facts=[f"{len(columns)} comparison{'s' * (len(columns) > 1)}", f"{len(_methods(columns))} methods"],
        summary=summary(columns),
        tables={heading: Markup(tables.to_html(table)) for heading, table in found.items()},
        notes=notes(columns),
        before_notes=_last(found, "Accuracy"),
        before_plates=_last(found, "Differences"),
        plates={name: Markup(figures.svg(figure, name)) for name, figure in plates.items()},
        captions=CAPTIONS,
        common=common_settings(columns),
        reports={title: _link(each) for title, each in columns.items()},
    )


def _markdown(columns: Mapping[str, Comparison]) -> str:
    found = {heading: tables.to_markdown(table) for heading, table in _tables(columns).items()}
    parts = ["# Overview", f"**{summary(columns)}**"]
    for heading, table in found.items():
        parts += [f"## {heading}", table]
        if heading == _last(found, "Accuracy"):
            parts += ["\n".join(f"- *{entry}:* {text}" for entry, text in notes(columns).items())]
        if heading == _last(found, "Differences"):
            for name, (title, caption) in CAPTIONS.items():
                parts += [f"## {title}", f"![{name}](figures/{name}.png)", caption]
    parts += ["## Reports", "\n".join(f"- [{title}]({_link(each)})" for title, each in columns.items())]
    common = "\n".join(f"{name}: {value}" for name, value in common_settings(columns).items())
    parts += ["## Settings that all comparisons have in common", f"```yaml\n{common}\n```"]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _latex(columns: Mapping[str, Comparison]) -> str:
    found = _tables(columns)
    said = notes(columns)
    captions = {
        "Accuracy": f"{said['Accuracy']} Bold: {said['Bold']}",
        "Differences": f"accuracy minus that of local-only training, with 95 % t intervals. {summary(columns)}",
    }
    lines = [r"% needs \usepackage{booktabs}"]
    for heading, table in found.items():
        kind = heading.partition(",")[0]
        if kind not in captions:
            continue
        caption = f"{heading}: {captions[kind]}"
        lines += [
            r"\begin{table}",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            *textwrap.wrap(
                rf"\caption{{{tables.latex_escape(caption)}}}", 110, break_long_words=False, break_on_hyphens=False
            ),
            rf"\label{{tab:overview-{heading.lower().replace(', ', '-').replace(' ', '-')}}}",
            tables.to_latex(table).strip(),
            r"\end{table}",
            "",
        ]
    return "\n".join(lines)


def _console(columns: Mapping[str, Comparison]) -> str:
    parts = [*textwrap.wrap(summary(columns), tables.CONSOLE), ""]
    for title, comparison in columns.items():
        table = {
            "Method": [outcome.title for outcome in comparison.methods.values()],
            "After transfer (%)": [_cell(outcome, bold=False) for outcome in comparison.methods.values()],
            "Minus local-only (points)": [
                "-" if method == "local" else tables.interval(comparison.difference(method, "local"))
                for method in comparison.methods
            ],
        }
        parts += [title, tables.to_console(_frame(table))]
    return "\n".join(parts)


def _verdict(columns: Mapping[str, Comparison], a: str, b: str, name: str) -> str:
    found = [one for each in columns.values() if (one := each.difference(a, b))]
    signs = Counter(one.sign for one in found)
    of = f"{len(found)} comparison{'s' * (len(found) > 1)}"
    return f"above {name} in {signs[1]} of {of}, below it in {signs[-1]}, undecided in {signs[0]}" if found else ""


def _link(comparison: Comparison) -> str:
    """Return where the comparison's own report is, from the overview's folder."""
    return f"../{comparison.place}/report.html"


def _cell(outcome: Outcome | None, bold: bool) -> str:
    if outcome is None:
        return tables.NONE
    mean, space, spread = tables.percent(outcome.final.mean, outcome.final.seed_std).partition(" ")
    return f"**{mean}**{space}{spread}" if bold else mean + space + spread


def _paper(comparison: Comparison, method: str) -> str | None:
    number = paper.number(comparison.settings, method)
    return None if number is None else f"{number:.1f}"


def _by_kind(traffic: Mapping[str, float]) -> dict[str, float]:
    """Return bytes by kind, up and down together."""
    return {
        kind: sum(count for ledger, count in traffic.items() if ledger.startswith(kind.partition(" ")[0]))
        for kind in LEDGERS
    }


def _panels(columns: Mapping[str, Comparison], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with a titled panel for each comparison, two in a row."""
    across = min(2, len(columns))
    down = -(-len(columns) // across)
    figure = figures._figure(width, down * height + 0.4)
    panels = list(figure.subplots(down, across, squeeze=False).flatten())
    for axes in panels[len(columns) :]:
        axes.set_visible(False)
    for axes, title in zip(panels, columns, strict=False):
        axes.set_title(textwrap.fill(title, 44))
    return figure, panels[: len(columns)]


def _legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=5, handlelength=1.6)


def _frame(table: Mapping[str, Sequence[str]]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(table, dtype=object)


def _text(value: Any) -> str:
    """Return a setting as it is written under conf/."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
