"""One report per experiment: a page that needs nothing else, Markdown, LaTeX tables, CSV, text for the terminal."""

import hashlib
import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from matplotlib.figure import Figure

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.results import (
    HEADLINE,
    Difference,
    MethodResult,
    adversaries_in_words,
    comparison,
    divergences_in_words,
    local_only,
    paired_difference,
    subject,
    variant,
)
from ktpfl_pipeline.reports import figures, looks, page, paper, tables

if TYPE_CHECKING:
    import pandas as pd

THEOREM = "Theorem 1"
COMMUNICATION = "Communication and time"
SECTION_TABLES = {THEOREM: ("theorem",), COMMUNICATION: ("communication", "phases")}
"""Tables that stand below the figures of a section."""


@dataclass(frozen=True, eq=False)
class Report:
    """A finished report.

    Attributes:
        name: of the experiment.
        html: a page with its figures in it; it loads nothing.
        markdown: the same in short; it expects the figures as ``figures/<name>.png``.
        latex: the tables, each as a ``table``; they need the package booktabs.
        console: summary and comparison in plain text, at most 100 columns wide.
        figures: by file name, without suffix.
        variant: folder below that of the experiment's reports; empty for that folder itself.
        data: the numbers behind it, as text by file name.
    """

    name: str
    html: str
    markdown: str
    latex: str
    console: str
    figures: dict[str, Figure]
    variant: str = ""
    data: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        """The texts of the report by file name."""
        return {"report.html": self.html, "report.md": self.markdown, "table.tex": self.latex, **self.data}


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
        variant=variant(settings),
        data={
            "comparison.json": json.dumps(comparison(name, results, settings), indent=1) + "\n",
            **tables.data_files(results),
        },
    )


def identity(results: Sequence[MethodResult]) -> str:
    """Return a hash of the runs that a report is about: that of the same runs is the same report, made again."""
    keys = [[result.method, *(run.key for run in result.runs)] for result in results]
    return "report-" + hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]


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


def _verdict(a: MethodResult, b: MethodResult, name: str, when: str) -> str:
    found = paired_difference(a, b)
    if found is None:
        return f"{a.title} and {name} have no seed in common, so they cannot be compared."
    if found.low is None:
        return f"{a.title} {_stands(found)} {name} {when}, with one seed: without an interval this decides nothing."
    over = f"95 % interval {_ends(found)} over {found.seeds} seeds"
    if found.sign:
        return f"{a.title} {_stands(found)} {name} {when}, {over}."
    return (
        f"{a.title} and {name} cannot be told apart {when}: the difference is "
        f"{tables.signed(found.mean, None)} points, {over}."
    )


def _stands(found: Difference) -> str:
    if found.low is None and round(100 * found.mean, 1) == 0:
        return "is level with"
    return f"is {tables.percent(abs(found.mean), None)} points {'above' if found.mean > 0 else 'below'}"


def _ends(found: Difference) -> str:
    """Return the interval of a difference in points: ``[+0.4, +2.0]``."""
    return f"[{tables.signed(found.low, None)}, {tables.signed(found.high, None)}]"


def _other_point(main: MethodResult, local: MethodResult, how: str) -> str:
    """Add the comparison after local training where its interval says something else."""
    headline, other = paired_difference(main, local), paired_difference(main, local, "after_local", "after_local")
    if headline is None or other is None or _direction(headline) == _direction(other):
        return ""
    interval = "" if other.low is None else f", 95 % interval {_ends(other)}"
    return (
        f" After local training, before that round's {how}, the difference is {tables.signed(other.mean, None)} "
        f"points{interval}."
    )


def _direction(found: Difference) -> int:
    """Return what a difference says: its sign where the seeds carry it, and where there is one seed."""
    if found.low is None:
        return (found.mean > 0) - (found.mean < 0)
    return found.sign


def _plates(results: Sequence[MethodResult]) -> list[_Plate]:
    """Return all figures that the results allow, in the order of the page."""
    return [
        *_accuracy_plates(results),
        *_matrix_plates(results),
        *_theorem_plates(results),
        *_communication_plates(results),
        _label_plate(results),
    ]


def _accuracy_plates(results: Sequence[MethodResult]) -> list[_Plate]:
    main, how, seeds = subject(results), tables.transfer(results), max(len(result.seeds) for result in results)
    strong = [result.title for result in figures.emphasised(results)]
    caption = [
        f"Mean test accuracy over the clients{f' and {seeds} seeds' if seeds > 1 else ''} by round.",
        *_absent(main),
        f"Solid: at the end of the round, after {how}.",
        "Dashed: after local training, before that.",
        *([f"Bands: the range over {seeds} seeds."] if seeds > 1 else []),
        f"Thick: {' and '.join(strong)}"
        + ("; only these have dashed lines and bands." if len(results) > figures.FEW else "."),
        *(["Local-only has one line, because nothing comes back to it."] if local_only(results) else []),
    ]
    return [
        _Plate("accuracy", "Accuracy by round", figures.accuracy_curves(results), " ".join(caption)),
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
            + (
                ""
                if _same_data(results)
                else " Every seed deals other data to a client, so a row averages over several."
            ),
        ),
    ]


def _absent(result: MethodResult) -> list[str]:
    """Say how clients are evaluated that are not in a round's cohort, where there are such."""
    present = len(result.runs[0].history[0].cohort)
    if present == result.clients:
        return []
    return [f"{present} of {result.clients} clients are in a round; the others are evaluated as they are."]


def _matrix_plates(results: Sequence[MethodResult]) -> list[_Plate]:
    section, main = "Who learns from whom", subject(results)
    found = [result for result in results if result.runs[0].coefficients is not None and result.clients > 1]
    if not found:
        return []
    first, *others = sorted(found, key=lambda result: result is not main)
    plates = [
        _Plate(
            f"coefficients_{first.method}",
            section,
            figures.coefficient_heatmaps(first),
            f"Left, the weight of each teacher (column) for each student (row) that {first.title} ends with; "
            "right, how alike the clients' label distributions are. Clients stand in the same order in both, "
            f"by their two most frequent labels. Seed {first.runs[0].seed}, after the last round.",
        )
    ]
    if others:
        plates.append(
            _Plate(
                "coefficients_others",
                section,
                figures.coefficient_panels(others),
                f"The weights that the other methods with a matrix end with, seed {first.runs[0].seed}; rows and "
                "columns as above.",
            )
        )
    if first is main and main.runs[0].matrices and all(run.attention for run in main.runs):
        over = f" and {len(main.seeds)} seeds, with their range" if len(main.seeds) > 1 else ""
        plates.append(
            _Plate(
                "matrix_over_rounds",
                section,
                figures.matrix_over_rounds(main),
                f"Above, the weights of {main.title} after a few rounds, seed {main.runs[0].seed}; rows and "
                "columns as above. Below, the weight that a row puts on the client itself, on clients "
                "alike (cosine similarity of the label distributions above 0.5) and on other clients: mean over "
                f"students{over}. Dotted is what equal weights of 1/N give, "
                + ("the plain average." if tables.transfer([main]) == "aggregation" else "the consensus of FedMD."),
            )
        )
    return plates


def _theorem_plates(results: Sequence[MethodResult]) -> list[_Plate]:
    checked = _checked(results)
    if checked is None:
        return []
    return [
        _Plate(
            "theorem",
            THEOREM,
            figures.theorem(checked),
            "A dot is a client"
            + (" with one seed" if len(checked.seeds) > 1 else "")
            + f" of {checked.title}'s final models. Across, the smaller loss of the client's own model and of the "
            "average of all models' predictions; upward, the loss of the mixture that fits best (filled) and of the "
            "coefficients that the method learned (open). On the line and below it the mixture is no worse than both."
            + (
                " The method learned them for models; here they weigh predictions, as the theorem has it."
                if tables.transfer([checked]) == "aggregation"
                else ""
            ),
        )
    ]


def _communication_plates(results: Sequence[MethodResult]) -> list[_Plate]:
    if not any(sum(result.traffic.values()) for result in results):
        return []
    seeds = max(len(result.seeds) for result in results)
    return [
        _Plate(
            "communication",
            COMMUNICATION,
            figures.communication(results),
            "What all clients sent (up) and received (down) over all rounds, 1 MB = 10⁶ bytes"
            + (", mean over seeds" if seeds > 1 else "")
            + ". Knowledge is soft predictions or class means, parameters are models.",
        )
    ]


def _label_plate(results: Sequence[MethodResult]) -> _Plate:
    main = subject(results)
    run, same = main.runs[0], _same_data(results)
    return _Plate(
        "labels",
        "Data of the clients",
        figures.labels_per_client(run.label_counts, "Images of each client by label"),
        f"Private images by label, all splits together, partition {_words(run.partition)}"
        + ("." if len(main.seeds) == 1 else ", the same for every seed." if same else f", seed {run.seed}."),
    )


def _same_data(results: Sequence[MethodResult]) -> bool:
    """Say whether every seed deals the same labels to each client."""
    return len({str(run.label_counts) for run in subject(results).runs}) == 1


def _checked(results: Sequence[MethodResult]) -> MethodResult | None:
    """Return the method whose check of Theorem 1 is shown: the report's subject, where it was made for every seed."""
    main = subject(results)
    return main if all(run.theorem is not None for run in main.runs) else None


def _tables(results: Sequence[MethodResult], settings: dict[str, Any]) -> dict[str, "pd.DataFrame"]:
    """Return the tables by name, in the order of the page, without those that would be empty."""
    checked = _checked(results)
    found = {
        "comparison": tables.comparison_table(results, settings),
        "differences": tables.difference_table(results),
        "theorem": None if checked is None else tables.theorem_table(checked),
        "communication": tables.communication_table(results),
        "phases": tables.phase_table(results),
        "runs": tables.run_table(results),
    }
    return {name: table for name, table in found.items() if table is not None and len(table)}


def _captions(results: Sequence[MethodResult], settings: dict[str, Any]) -> dict[str, str]:
    """Return what the tables beside the first show, by name."""
    main, how, many = subject(results), tables.transfer(results), len(results[0].seeds) > 1
    found = {
        "differences": f"{main.title} minus each other method: final accuracy after {how} and after local training, "
        "paired by seed"
        + (
            ", each with its 95 % t interval over the seeds; bold where it excludes zero. The intervals are not "
            "corrected for their number."
            if many
            else ". With one seed there are no intervals, and nothing is decided."
        ),
        "communication": "Sums over all clients and rounds"
        + (", mean over seeds" if many else "")
        + "; 1 MB = 10⁶ bytes, 1 kB = 10³. Up is from the clients to the server."
        + _crossover(results),
        "phases": "Wall time by phase of a round, summed over the rounds"
        + (", mean over seeds" if many else "")
        + ". It depends on the machine and on what else ran there.",
    }
    checked = _checked(results)
    if checked is not None:
        checks = [run.theorem for run in checked.runs if run.theorem is not None]
        largest = max(value for check in checks for value in check.certificate)
        fit, test = (f"{fmean(n[half] for check in checks for n in check.samples):.0f}" for half in (0, 1))
        found["theorem"] = (
            "Theorem 1 says that some mixture of the clients' models is, for each client, no worse than its own model "
            "and than their average. The best mixture of predictions is fitted by maximum likelihood to half of each "
            f"client's test images ({fit} on average) and compared there and on the other half ({test}). Certificate: "
            f"no mixture fits any client better by more than {largest:.1e} nats. On the fitted half the theorem "
            "must hold; on the other half, and for the learned coefficients, it promises nothing. No worse: by at most "
            f"{tables.TOLERANCE:.0e} nats, on the fitted half beyond the certificate. Means over clients"
            + (", ± standard deviation over seeds." if many else ".")
        )
    return found


def _crossover(results: Sequence[MethodResult]) -> str:
    """Say how many public images cost as much in soft predictions as the model of the report's subject."""
    main = subject(results)
    turns = sum(len(record.cohort) for run in main.runs for record in run.history) / len(main.runs)
    size = main.traffic["parameters_up"] / turns
    if tables.transfer([main]) != "aggregation" or len(set(main.runs[0].architectures)) > 1:
        return ""
    architecture, classes = looks.architecture_title(main.runs[0].architectures[0]), len(main.runs[0].label_counts[0])
    return (
        f" A model ({architecture}) is {size / 1e3:,.0f} kB. Soft predictions are 4 bytes an image and class: with "
        f"{classes} classes, those of {size / 4 / classes:,.0f} public images take as much each way, plus the images."
    )


def _html(name: str, results: Sequence[MethodResult], settings: dict[str, Any], plates: Sequence[_Plate]) -> str:
    sections: dict[str, list[dict[str, Any]]] = {}
    for plate in plates:
        drawn = Markup(figures.svg(plate.figure, plate.name))
        sections.setdefault(plate.section, []).append({"svg": drawn, "name": plate.name, "caption": plate.caption})
    sections.setdefault(COMMUNICATION, [])
    return page.render(
        "report.html.jinja",
        name=name,
        facts=_facts(results, settings),
        summary=summary(results),
        tables={key: Markup(tables.to_html(table)) for key, table in _tables(results, settings).items()},
        captions=_captions(results, settings),
        notes=tables.notes(results, settings),
        sections=sections,
        section_tables=SECTION_TABLES,
        settings=_groups(settings),
        hyperparameters={result.title: _hyperparameters(result) for result in results},
        origin=_origin(settings),
    )


def _markdown(name: str, results: Sequence[MethodResult], settings: dict[str, Any], plates: Sequence[_Plate]) -> str:
    shown, captions = _tables(results, settings), _captions(results, settings)
    parts = [
        f"# {name}",
        f"**{summary(results)}**",
        " · ".join(_facts(results, settings)),
        tables.to_markdown(shown["comparison"]),
        "\n".join(f"- *{column}:* {text}" for column, text in tables.notes(results, settings).items()),
    ]
    if "differences" in shown:
        parts += ["## Differences", tables.to_markdown(shown["differences"]), captions["differences"]]
    sections = {plate.section: None for plate in plates} | {COMMUNICATION: None}
    for section in sections:
        parts += [f"## {section}"]
        for plate in plates:
            if plate.section == section:
                parts += [f"![{plate.name}](figures/{plate.name}.png)", plate.caption]
        for table in SECTION_TABLES.get(section, ()):
            parts += [tables.to_markdown(shown[table])] + ([captions[table]] if table in captions else [])
    parts += [
        "## Settings",
        _listing(_flat(settings)),
        "## Hyperparameters",
        _origin(settings),
        _listing(
            {f"{result.method}.{key}": value for result in results for key, value in _hyperparameters(result).items()}
        ),
        "## Runs",
        tables.to_markdown(shown["runs"]),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _latex(name: str, results: Sequence[MethodResult], settings: dict[str, Any]) -> str:
    shown, seeds = _tables(results, settings), max(len(result.seeds) for result in results)
    notes = tables.notes(results, settings)
    captions = {
        "comparison": f"{summary(results)} Setting: {'; '.join(_facts(results, settings))}. Accuracies are means over "
        "the clients of the mean of the last five evaluations"
        + (", ± the standard deviation over seeds." if seeds > 1 else ".")
        + (f" Bold: {notes['Bold']}" if "Bold" in notes else ""),
        **_captions(results, settings),
    }
    label = name.replace("_", "-")
    lines = [r"% needs \usepackage{booktabs}"]
    for table, caption in captions.items():
        if table not in shown:
            continue
        lines += [
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            *textwrap.wrap(
                rf"\caption{{{tables.latex_escape(caption)}}}", 110, break_long_words=False, break_on_hyphens=False
            ),
            rf"\label{{tab:{label}{'' if table == 'comparison' else f'-{table}'}}}",
            tables.to_latex(shown[table]).strip(),
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
    first = main.runs[0].history[0]
    source = str(settings.get("private", {}).get("source", ""))
    models = Counter(main.runs[0].architectures)
    seeds = sorted({seed for result in results for seed in result.seeds})
    return [
        *([paper.DATASETS.get(source.partition(":")[0], source)] if source else []),
        f"partition {_words(main.runs[0].partition)}",
        f"{main.clients} client{'s' * (main.clients > 1)}: "
        + ", ".join(f"{count} {looks.architecture_title(model)}" for model, count in models.items()),
        *(
            [f"{present} of them in a round"]
            if (present := len({*first.cohort, *first.diverged})) < main.clients
            else []
        ),
        f"{main.rounds} round{'s' * (main.rounds > 1)}",
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}",
        *adversaries_in_words(settings),
        *divergences_in_words(results),
        *(["tuned hyperparameters"] if settings.get("hyperparameters") == "tuned" else []),
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


def _origin(settings: dict[str, Any]) -> str:
    """Say where the hyperparameters are from: of all methods alike, else the settings would not be equal."""
    if settings.get("hyperparameters") == "tuned":
        return (
            "Tuned, every method's: chosen for this experiment on validation data, from at most as many candidates for "
            "each method."
        )
    return "Configured, every method's: as they stand under conf/, not chosen for this comparison."


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
