"""One report per experiment: a page that needs nothing else, Markdown, a LaTeX table, text for the terminal."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from ktpfl_pipeline import methods
from ktpfl_pipeline.reports import figures, page, paper, tables
from ktpfl_pipeline.reports.results import HEADLINE, MethodResult, carries, local_only, paired_difference, subject


@dataclass(frozen=True, eq=False)
class Report:
    """A finished report.

    Attributes:
        name: of the experiment.
        html: a page with its figures in it; it loads nothing.
        markdown: the same in short; it expects the figures as ``figures/<name>.png``.
        latex: the comparison as a ``table``; it needs the package booktabs.
        console: summary and comparison in plain text, at most 100 columns wide.
        figures: by file name, without suffix.
    """

    name: str
    html: str
    markdown: str
    latex: str
    console: str
    figures: dict[str, Figure]


@dataclass(frozen=True, eq=False)
class _Plate:
    """A figure with its words."""

    name: str
    section: str
    figure: Figure
    caption: str


def build(name: str, results: Sequence[MethodResult], settings: dict[str, Any]) -> Report:
    """Return the report on the methods of one experiment.

    Args:
        name: of the experiment.
        results: the methods, in the order in which they are shown; at least one.
        settings: the experiment's, a nested dict of plain values; what all methods share.

    Raises:
        ValueError: without results, or if the methods have different numbers of clients.
    """
    if not results:
        raise ValueError("A report needs the result of at least one method.")
    if len({result.clients for result in results}) > 1:
        raise ValueError("A report needs methods with the same clients; these have different numbers of them.")
    plates = _plates(results)
    return Report(
        name=name,
        html=_html(name, results, settings, plates),
        markdown=_markdown(name, results, settings, plates),
        latex=_latex(name, results, settings),
        console=_console(name, results, settings),
        figures={plate.name: plate.figure for plate in plates},
    )


def summary(results: Sequence[MethodResult]) -> str:
    """Say what came out: first of all how the report's subject stands to local-only, and whether the seeds carry it."""
    main, local, how = subject(results), local_only(results), tables.transfer(results)
    reached = tables.percent(main.final[HEADLINE].mean, main.final[HEADLINE].seed_std)
    if main is local:
        return f"Local-only training reaches {reached} %; no method that exchanges knowledge stands beside it."
    if local is None:
        first = (
            f"{main.title} reaches {reached} % after {how}; there is no local-only run beside it, so nothing here "
            "tells whether exchanging knowledge helped."
        )
    else:
        first = f"{_verdict(main, local, 'local-only', f'after {how}')}{_other_point(main, local, how)}"
    best = max(results, key=lambda result: result.final[HEADLINE].mean)
    if best is main or best is local:
        return first
    return f"{first} The highest mean is {best.title}'s. {_verdict(best, main, main.title, f'after {how}')}"


def _verdict(a: MethodResult, b: MethodResult, name: str, when: str, point: str = HEADLINE) -> str:
    difference, std = paired_difference(a, b, point, point)
    if difference is None:
        return f"{a.title} and {name} have no seed in common, so they cannot be compared."
    seeds = len(set(a.seeds) & set(b.seeds))
    if std is None:
        stands = _stands(difference)
        return f"{a.title} {stands} {name} {when}, with one seed: without a spread over seeds this decides nothing."
    if carries(difference, std):
        return f"{a.title} {_stands(difference, std)} {name} {when}, over {seeds} seeds."
    return (
        f"{a.title} and {name} cannot be told apart {when}: the difference of {tables.signed(difference, std)} points "
        f"over {seeds} seeds is within its spread."
    )


def _stands(difference: float, std: float | None = None) -> str:
    if std is None and round(100 * difference, 1) == 0:
        return "is level with"
    return f"is {tables.percent(abs(difference), std)} points {'above' if difference > 0 else 'below'}"


def _other_point(main: MethodResult, local: MethodResult, how: str) -> str:
    """Add the comparison after local training where it says something else."""
    if "after_local" not in main.final or "after_local" not in local.final:
        return ""
    headline, other = (paired_difference(main, local, point, point) for point in (HEADLINE, "after_local"))
    if _direction(*headline) == _direction(*other):
        return ""
    return f" After local training, before that round's {how}, the difference is {tables.signed(*other)} points."


def _direction(difference: float | None, std: float | None) -> int:
    if difference is None or (std is not None and not carries(difference, std)):
        return 0
    return 1 if difference > 0 else -1


def _plates(results: Sequence[MethodResult]) -> list[_Plate]:
    main, how, seeds = subject(results), tables.transfer(results), max(len(result.seeds) for result in results)
    run, same = main.runs[0], len({str(run.label_counts) for run in main.runs}) == 1
    band = f"; the band is the range over {seeds} seeds" if seeds > 1 else ""
    plates = [
        _Plate(
            "accuracy",
            "Accuracy by round",
            figures.accuracy_curves(results),
            f"Mean test accuracy over the clients{' and seeds' if seeds > 1 else ''}: solid after {how}, dashed and "
            f"thin after local training{band}."
            + (" Local-only has one line, because nothing comes back to it." if local_only(results) else ""),
        ),
        _Plate(
            "spread",
            "Spread over the clients",
            figures.spread_over_clients(results),
            f"Test accuracy after {how} by round. Thin lines are clients"
            + (", each the mean over seeds" if seeds > 1 else "")
            + "; the band holds their middle half, the thick line is their mean.",
        ),
        _Plate(
            "clients",
            "Accuracy by client",
            figures.client_accuracy(results),
            f"Each client's final accuracy after {how}"
            + (f", mean over {seeds} seeds" if seeds > 1 else "")
            + (
                f". Rows are sorted by what {main.title} gains over local-only, in points at the right."
                if local_only(results) not in (None, main)
                else "."
            )
            + ("" if same else " Every seed deals other data to a client, so a row averages over several."),
        ),
    ]
    for result in results:
        if result.runs[0].coefficients is not None and result.clients > 1:
            plates.append(
                _Plate(
                    f"coefficients_{result.method}",
                    "Who learns from whom",
                    figures.coefficient_heatmaps(result),
                    f"Left, the weight of each teacher (column) for each student (row) that {result.title} ends with; "
                    "right, how alike the clients' label distributions are. Clients stand in the same order in both, "
                    f"by their two most frequent labels. Seed {result.runs[0].seed}, after the last round.",
                )
            )
    plates.append(
        _Plate(
            "labels",
            "Data of the clients",
            figures.labels_per_client(run.label_counts, "Images of each client by label"),
            f"Private images by label, all splits together, partition {_words(run.partition)}"
            + ("." if same and seeds == 1 else ", the same for every seed." if same else f", seed {run.seed}."),
        )
    )
    return plates


def _html(name: str, results: Sequence[MethodResult], settings: dict[str, Any], plates: Sequence[_Plate]) -> str:
    sections: dict[str, list[dict[str, Any]]] = {}
    for plate in plates:
        drawn = Markup(figures.svg(plate.figure, plate.name))
        sections.setdefault(plate.section, []).append({"svg": drawn, "name": plate.name, "caption": plate.caption})
    shown = {
        "comparison": tables.comparison_table(results, settings),
        "communication": tables.communication_table(results),
        "phases": tables.phase_table(results),
        "runs": tables.run_table(results),
    }
    return page.render(
        "report.html.jinja",
        name=name,
        facts=_facts(results, settings),
        summary=summary(results),
        tables={key: Markup(tables.to_html(table)) for key, table in shown.items()},
        notes=tables.notes(results, settings),
        sections=sections,
        settings=_groups(settings),
        hyperparameters={result.title: _hyperparameters(result) for result in results},
    )


def _markdown(name: str, results: Sequence[MethodResult], settings: dict[str, Any], plates: Sequence[_Plate]) -> str:
    parts = [
        f"# {name}",
        f"**{summary(results)}**",
        " · ".join(_facts(results, settings)),
        tables.to_markdown(tables.comparison_table(results, settings)),
        "\n".join(f"- *{column}:* {text}" for column, text in tables.notes(results, settings).items()),
    ]
    section = ""
    for plate in plates:
        parts += [f"## {plate.section}"] if plate.section != section else []
        parts += [f"![{plate.name}](figures/{plate.name}.png)", plate.caption]
        section = plate.section
    parts += [
        "## Communication and time",
        tables.to_markdown(tables.communication_table(results)),
        tables.to_markdown(tables.phase_table(results)),
        "## Settings",
        _listing(_flat(settings)),
        "## Hyperparameters",
        _listing(
            {f"{result.method}.{key}": value for result in results for key, value in _hyperparameters(result).items()}
        ),
        "## Runs",
        tables.to_markdown(tables.run_table(results)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _latex(name: str, results: Sequence[MethodResult], settings: dict[str, Any]) -> str:
    seeds = max(len(result.seeds) for result in results)
    caption = (
        f"{summary(results)} Setting: {'; '.join(_facts(results, settings))}. Accuracies are means over the clients of "
        "the mean of the last five evaluations" + (", ± the standard deviation over seeds." if seeds > 1 else ".")
    )
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        *textwrap.wrap(
            rf"\caption{{{tables.latex_escape(caption)}}}", 110, break_long_words=False, break_on_hyphens=False
        ),
        rf"\label{{tab:{name.replace('_', '-')}}}",
        tables.to_latex(tables.comparison_table(results, settings)).strip(),
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _console(name: str, results: Sequence[MethodResult], settings: dict[str, Any]) -> str:
    text = "\n".join(
        [
            name,
            *textwrap.wrap(summary(results).replace(tables.MINUS, "-"), tables.CONSOLE),
            "",
            tables.to_console(tables.comparison_table(results, settings)),
        ]
    )
    unequal = tables.inequalities(results)
    return text + (
        "\n".join(textwrap.wrap(f"Not like for like: {'; '.join(unequal)}.", tables.CONSOLE)) + "\n" if unequal else ""
    )


def _facts(results: Sequence[MethodResult], settings: dict[str, Any]) -> list[str]:
    main = subject(results)
    source = str(settings.get("private", {}).get("source", ""))
    models = Counter(main.runs[0].architectures)
    seeds = sorted({seed for result in results for seed in result.seeds})
    return [
        *([paper.DATASETS.get(source.partition(":")[0], source)] if source else []),
        f"partition {_words(main.runs[0].partition)}",
        f"{main.clients} client{'s' * (main.clients > 1)}: "
        + ", ".join(f"{count} {figures.architecture_title(model)}" for model, count in models.items()),
        f"{main.rounds} round{'s' * (main.rounds > 1)}",
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}",
    ]


def _groups(settings: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the settings by group, those outside any group first."""
    single = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    nested = {key: value for key, value in settings.items() if isinstance(value, dict)}
    return {group: _flat(values) for group, values in {"experiment": single, **nested}.items() if values}


def _flat(values: dict[str, Any], path: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": _scalar(value)}
    return flat


def _scalar(value: Any) -> str:
    """Return a setting as it is written under conf/."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_scalar, value))
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def _hyperparameters(result: MethodResult) -> dict[str, str]:
    """Return all hyperparameters of a registered method, those left at their defaults too."""
    if result.method not in methods.METHODS:
        return _flat(result.hyperparameters)
    made: Any = methods.create(result.method, result.hyperparameters)
    return _flat(asdict(made))


def _listing(values: dict[str, str]) -> str:
    lines = [f"{key}: {value}" for key, value in values.items()]
    return "\n".join(["```yaml", *lines, "```"]) if lines else "None."


def _words(name: str) -> str:
    return name.replace("_", " ")
