"""The report on the methods of one experiment."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.results import (
    HEADLINE,
    MethodResult,
    comparison,
    local_only,
    paired_difference,
    subject,
)
from ktpfl_pipeline.analysis.statistics import Difference
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.reports import figures, paper, tables
from ktpfl_pipeline.reports.figures.accuracy import FEW, emphasised
from ktpfl_pipeline.reports.model import ALERT, Block, Notes, Picture, Section, Settings, Table, Text
from ktpfl_pipeline.reports.numbers import accuracy, between, percent, points
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.style import architecture_title
from ktpfl_pipeline.reports.words import (
    INTERVAL,
    LANDMARK,
    averaged,
    listed_seeds,
    over_seeds,
    plain,
    plural,
    transfer,
)
from ktpfl_pipeline.reports.words import (
    settings as written,
)

TERMINAL = ("Spread over clients (points)", "Paper (%)")
"""Columns that the terminal does not show."""


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
    told, facts, said = summary(results), _facts(results, settings), notes(results, settings)
    caption = f"{told} Setting: {'; '.join(facts)}. Accuracy: {said['Final values']} Bold: {said['Bold']}"
    main = tables.comparison_table(results, settings, caption)
    sections = [
        Section("", [main, Notes(said)]),
        _differences(results),
        _accuracy(results),
        _spread(results),
        _clients(results),
        _matrix(results),
        _theorem(results),
        _communication(results),
        _labels(results),
        Section("Settings", [Settings(_groups(settings))]),
        Section(
            "Hyperparameters", [Text(_origin(settings)), Settings({r.title: _hyperparameters(r) for r in results})]
        ),
        Section("Runs", [tables.run_table(results), Text(RUNS)]),
    ]
    alert = [Text(f"{ALERT}: {said[ALERT]}")] if ALERT in said else []
    return Report(
        name=name,
        kind="Experiment report",
        summary=told,
        facts=facts,
        sections=[section for section in sections if section.blocks],
        brief=[main.without(*TERMINAL), *alert],
        variant=variant(settings),
        data={
            "comparison.json": json.dumps(comparison(name, results, settings), indent=1) + "\n",
            **tables.data_files(results),
        },
    )


RUNS = (
    "Every number above comes from these runs. In MLflow, the run holds its history, figures and settings; runs with "
    "equal settings have equal keys."
)


def identity(results: Sequence[MethodResult]) -> str:
    """Return a hash of the runs that a report is about: that of the same runs is the same report, made again."""
    return f"report-{digest([[result.method, *(run.key for run in result.runs)] for result in results])}"


def variant(settings: dict[str, Any]) -> str:
    """Return what partition and public set are called in a folder's name: ``dirichlet-0.3-open_part``.

    Where not all clients are in a round, their number and the share that is: ``two_labels-open_part-100_clients-0.1``.
    Where some upload false predictions, which and their share: ``two_labels-open_part-flipped-0.1``.
    Where hyperparameters were tuned, that: ``two_labels-open_part-tuned``.
    Comparisons of one experiment that differ in these have reports side by side. Empty where the settings name none.
    """
    partition, adversaries = settings.get("partition", {}), settings.get("adversaries", {})
    scheme = partition.get("scheme")
    parts = [
        scheme,
        partition.get("alpha") if scheme == "dirichlet" else None,
        settings.get("public", {}).get("source"),
    ]
    if settings.get("participation", 1) < 1:
        parts += [f"{settings['clients']}_clients", settings["participation"]]
    if adversaries.get("share"):
        parts += [adversaries["kind"], adversaries["share"]]
    if settings.get("hyperparameters") == "tuned":
        parts.append("tuned")
    return re.sub(r"[^\w.-]+", "_", "-".join(str(part) for part in parts if part is not None)).strip("._")


# What came out. -------------------------------------------------------------------------------------------------------


def summary(results: Sequence[MethodResult]) -> str:
    """Say what came out: first of all how the report's subject stands to local-only, and whether the seeds carry it."""
    main, local, how = subject(results), local_only(results), transfer(results)
    reached = accuracy(main.final[HEADLINE])
    if main is local:
        return f"Local-only training reaches {reached} %; no method that exchanges knowledge stands beside it."
    if local is None:
        first = f"{main.title} reaches {reached} % after {how}; {ALONE}"
    else:
        first = f"{_verdict(main, local, 'local-only', how)}{_other_point(main, local, how)}"
    best = max(results, key=lambda result: result.final[HEADLINE].mean)
    if best is main or best is local:
        return first
    return f"{first} The highest mean is {best.title}'s. {_verdict(best, main, main.title, how)}"


ALONE = "there is no local-only run beside it, so nothing here tells whether exchanging knowledge helped."


def _verdict(a: MethodResult, b: MethodResult, name: str, how: str) -> str:
    found = paired_difference(a, b)
    if found is None:
        return f"{a.title} and {name} have no seed in common, so they cannot be compared."
    level = found.low is None and round(100 * found.mean, 1) == 0
    stands = f"{percent(abs(found.mean))} points {'above' if found.mean > 0 else 'below'}"
    stands = f"{a.title} is {'level with' if level else stands} {name} after {how}"
    if found.low is None:
        return f"{stands}, with one seed: without an interval this decides nothing."
    over = f"95 % interval {between(found)} over {found.seeds} seeds"
    if found.sign:
        return f"{stands}, {over}."
    return (
        f"{a.title} and {name} cannot be told apart after {how}: the difference is {points(found.mean)} points, {over}."
    )


def _other_point(main: MethodResult, local: MethodResult, how: str) -> str:
    """Add the comparison after local training where its interval says something else."""
    headline, other = paired_difference(main, local), paired_difference(main, local, "after_local", "after_local")
    if headline is None or other is None or _direction(headline) == _direction(other):
        return ""
    over = "" if other.low is None else f", 95 % interval {between(other)}"
    before = f"After local training, before that round's {how}, the difference is"
    return f" {before} {points(other.mean)} points{over}."


def _direction(found: Difference) -> int:
    """Return what a difference says: its sign where the seeds carry it, and where there is one seed."""
    return (found.mean > 0) - (found.mean < 0) if found.low is None else found.sign


def _facts(results: Sequence[MethodResult], settings: dict[str, Any]) -> list[str]:
    main = subject(results)
    first, source = main.runs[0].history[0], str(settings.get("private", {}).get("source", ""))
    models = Counter(main.runs[0].architectures)
    present = len({*first.cohort, *first.diverged})
    adversaries = settings.get("adversaries", {})
    diverged = {r.title: sum(len(t.diverged) for run in r.runs for t in run.history) for r in results}
    told = ", ".join(f"{title} {count}" for title, count in diverged.items() if count)
    facts = {
        paper.DATASETS.get(source.partition(":")[0], source): bool(source),
        f"partition {plain(main.runs[0].partition)}": True,
        f"{plural(main.clients, 'client')}: "
        + ", ".join(f"{count} {architecture_title(model)}" for model, count in models.items()): True,
        f"{present} of them in a round": present < main.clients,
        plural(main.rounds, "round"): True,
        listed_seeds(sorted({seed for result in results for seed in result.seeds})): True,
        f"{100 * adversaries.get('share', 0):g} % of the clients are adversaries and upload "
        f"{adversaries.get('kind')} predictions; means are over the others": bool(adversaries.get("share")),
        f"training diverged and a client was skipped or restored: {told}": bool(told),
        "tuned hyperparameters": settings.get("hyperparameters") == "tuned",
    }
    return [fact for fact, holds in facts.items() if holds]


def notes(results: Sequence[MethodResult], settings: dict[str, Any]) -> dict[str, str]:
    """Return what the columns of the main table mean, by column; and first whatever makes the rows unequal."""
    how, seeds, unequal = transfer(results), len(results[0].seeds), inequalities(results)
    worst = max(1, results[0].clients // 10)
    alike = ", ".join(result.title for result in results if _one_point(result))
    return {
        **({ALERT: "; ".join(unequal) + "."} if unequal else {}),
        f"After {how}": "the model that each client uses at the end of the round, once knowledge has come back, on that "
        "client's test images; mean over all clients, in the round's cohort or not. This is the headline.",
        "After local training": "the same clients before any knowledge came back in that round. The two points can be "
        "far apart: compare methods at one of them."
        + (f" They are one where knowledge comes back only before training: {alike}." if alike else ""),
        "Final values": f"{averaged(seeds)} The best round is recorded with the results and is never the headline.",
        "Bold": "the best accuracy of a column, where the 95 % interval of its difference to the runner-up, paired by "
        "seed, excludes zero; a difference, where its own does. No bold: the seeds do not decide.",
        "Minus local-only": ALONE if local_only(results) is None else f"after {how}, {INTERVAL}",
        "Spread over clients, worst decile": f"standard deviation over the {results[0].clients} clients, and the mean "
        f"over the {plural(worst, 'client')} of lowest accuracy, after {how}; both in every seed{over_seeds(seeds)}.",
        "Traffic, time": "all clients and rounds, up and down, 1 MB = 10⁶ bytes; wall time of the rounds with their "
        f"evaluations{over_seeds(seeds)}.",
        "Paper": _paper(results, settings),
    }


def _one_point(result: MethodResult) -> bool:
    """Say whether nothing comes back after a method's training, so that both evaluation points are one."""
    records = [record.accuracy for run in result.runs for record in run.evaluated]
    both = result.method != "local" and "after_local" in result.final
    return both and all(record["after_local"] == record[HEADLINE] for record in records)


def _paper(results: Sequence[MethodResult], settings: dict[str, Any]) -> str:
    if differing := paper.differences(settings):
        other = "; ".join(differing)
        return f"no number of the paper stands beside ours, because the setting is another: {other}."
    if all(paper.number(settings, result.method) is None for result in results):
        return "we have no number of the paper for this setting that we can cite."
    return LANDMARK


def inequalities(results: Sequence[MethodResult]) -> list[str]:
    """Return in what the methods of a comparison were not treated alike, in words; empty in nothing."""
    compared: dict[str, Callable[[MethodResult], str]] = {
        "seeds": lambda result: ", ".join(map(str, result.seeds)),
        "rounds": lambda result: str(result.rounds),
    }
    found = [
        f"{what} differ ({'; '.join(f'{result.title}: {value(result)}' for result in results)})"
        for what, value in compared.items()
        if len(set(map(value, results))) > 1
    ]
    data: dict[int, set[str]] = {}
    for run in (run for result in results for run in result.runs):
        data.setdefault(run.seed, set()).add(str((run.partition, run.label_counts, run.architectures)))
    unlike = any(len(kinds) > 1 for kinds in data.values())
    return [*found, *(["the clients' data or models differ between methods"] if unlike else [])]


# The sections. --------------------------------------------------------------------------------------------------------


def _captioned(table: Callable[..., Table], *given: Any, caption: str) -> list[Block]:
    """Return a table with its caption; nothing where it has no rows."""
    made = table(*given, latex=caption)
    return [made, Text(caption)] if made.rows else []


def _differences(results: Sequence[MethodResult]) -> Section:
    title = f"{subject(results).title} minus each other method"
    caption = f"{title}: final accuracy after {transfer(results)} and after local training, {INTERVAL}"
    return Section("Differences", _captioned(tables.difference_table, results, caption=caption))


def _accuracy(results: Sequence[MethodResult]) -> Section:
    main, how, seeds = subject(results), transfer(results), max(len(result.seeds) for result in results)
    present, few = len(main.runs[0].history[0].cohort), len(results) <= FEW
    parts = {
        f"Mean test accuracy over the clients{f' and {seeds} seeds' * (seeds > 1)} by round.": True,
        f"{present} of {main.clients} clients are in a round; the others are evaluated as they are.": (
            present < main.clients
        ),
        f"Solid: at the end of the round, after {how}. Dashed: after local training, before that.": True,
        f"Bands: the range over {seeds} seeds.": seeds > 1,
        f"Thick: {' and '.join(result.title for result in emphasised(results))}"
        + ("." if few else "; only these have dashed lines and bands."): True,
        "Local-only has one line, because nothing comes back to it.": local_only(results) is not None,
    }
    caption = " ".join(part for part, holds in parts.items() if holds)
    return Section("Accuracy by round", [Picture("accuracy", figures.accuracy_curves(results), caption)])


def _spread(results: Sequence[MethodResult]) -> Section:
    caption = (
        f"Test accuracy after {transfer(results)} by round. Thin lines are clients{over_seeds(len(results[0].seeds))}; "
        "the band holds their middle half, the thick line is their mean."
    )
    return Section("Spread over the clients", [Picture("spread", figures.spread_over_clients(results), caption)])


def _clients(results: Sequence[MethodResult]) -> Section:
    main, seeds = subject(results), max(len(result.seeds) for result in results)
    caption = f"Each client's final accuracy after {transfer(results)}{over_seeds(seeds)}."
    if local_only(results) not in (None, main):
        caption += f" Rows are sorted by what {main.title} gains over local-only, in points at the right."
    if not _same_data(main):
        caption += " Every seed deals other data to a client, so a row averages over several."
    return Section("Accuracy by client", [Picture("clients", figures.client_accuracy(results), caption)])


def _same_data(main: MethodResult) -> bool:
    """Say whether every seed deals the same labels to each client."""
    return len({str(run.label_counts) for run in main.runs}) == 1


def _matrix(results: Sequence[MethodResult]) -> Section:
    main, pictures = subject(results), []
    found = [result for result in results if result.runs[0].coefficients is not None and result.clients > 1]
    found.sort(key=lambda result: result is not main)
    first, others = found[0] if found else None, found[1:]
    if first is not None:
        caption = (
            f"Left, the weight of each teacher (column) for each student (row) that {first.title} ends with; right, "
            "how alike the clients' label distributions are. Clients stand in the same order in both, by their two "
            f"most frequent labels. Seed {first.seeds[0]}, after the last round."
        )
        drawn = figures.coefficient_heatmaps(first)
        pictures.append(Picture(f"coefficients_{first.method}", drawn, caption))
    if others:
        caption = f"The weights that the other methods with a matrix end with, seed {main.seeds[0]}."
        pictures.append(Picture("coefficients_others", figures.coefficient_panels(others), f"{caption} {SAME_ORDER}"))
    if first is main and main.runs[0].matrices and all(run.attention for run in main.runs):
        models = transfer([main]) == "aggregation"
        caption = (
            f"Above, the weights of {main.title} after a few rounds, seed {main.seeds[0]}. {SAME_ORDER} Below, the "
            "weight that a row puts on the client itself, on clients alike (cosine similarity of the label "
            f"distributions above 0.5) and on other clients: mean over students{over_seeds(len(main.seeds))}. Dotted is "
            f"what equal weights of 1/N give, the {'plain average' if models else 'consensus of FedMD'}."
        )
        pictures.append(Picture("matrix_over_rounds", figures.matrix_over_rounds(main), caption))
    return Section("Who learns from whom", pictures)


SAME_ORDER = "Rows and columns as above."


def _theorem(results: Sequence[MethodResult]) -> Section:
    main = subject(results)
    checks = [run.theorem for run in main.runs if run.theorem is not None]
    if len(checks) < len(main.runs):
        return Section("Theorem 1", [])
    models = " The method learned them for models; here they weigh predictions, as the theorem has it."
    figure = (
        f"A dot is a client of {main.title}'s final models with one seed. Across, the smaller loss of the client's own "
        "model and of the average of all models' predictions; upward, the loss of the mixture that fits best (filled) "
        "and of the coefficients that the method learned (open). On the line and below it the mixture is no worse than "
        f"both.{models * (transfer([main]) == 'aggregation')}"
    )
    largest = max(value for check in checks for value in check.certificate)
    fit, test = (f"{fmean(n[half] for check in checks for n in check.samples):.0f}" for half in (0, 1))
    caption = (
        "Theorem 1 says that some mixture of the clients' models is, for each client, no worse than its own model and "
        "than their average. The best mixture of predictions is fitted by maximum likelihood to half of each client's "
        f"test images ({fit} on average) and compared there and on the other half ({test}). Certificate: no mixture "
        f"fits any client better by more than {largest:.1e} nats. On the fitted half the theorem must hold; on the "
        "other half, and for the learned coefficients, it promises nothing. No worse: by at most "
        f"{tables.TOLERANCE:.0e} nats, on the fitted half beyond the certificate. Means over clients, ± the standard "
        "deviation over seeds."
    )
    picture = Picture("theorem", figures.theorem(main), figure)
    return Section("Theorem 1", [picture, *_captioned(tables.theorem_table, main, caption=caption)])


def _communication(results: Sequence[MethodResult]) -> Section:
    mean = over_seeds(max(len(result.seeds) for result in results))
    drawn: list[Block] = []
    if any(sum(result.traffic.values()) for result in results):
        caption = (
            f"What all clients sent (up) and received (down) over all rounds, 1 MB = 10⁶ bytes{mean}. Knowledge is soft "
            "predictions or class means, parameters are models."
        )
        drawn.append(Picture("communication", figures.communication(results), caption))
    traffic = (
        f"Sums over all clients and rounds{mean}; 1 MB = 10⁶ bytes, 1 kB = 10³. Up is from the clients to the server."
        + _crossover(subject(results))
    )
    time = f"Wall time by phase of a round, summed over the rounds{mean}. It depends on the machine and its load."
    return Section(
        "Communication and time",
        [
            *drawn,
            *_captioned(tables.communication_table, results, caption=traffic),
            *_captioned(tables.phase_table, results, caption=time),
        ],
    )


def _crossover(main: MethodResult) -> str:
    """Say how many public images cost as much in soft predictions as the model of the report's subject."""
    if transfer([main]) != "aggregation" or len(set(main.runs[0].architectures)) > 1:
        return ""
    size, classes = main.traffic["parameters_up"] / main.turns, len(main.runs[0].label_counts[0])
    return (
        f" A model ({architecture_title(main.runs[0].architectures[0])}) is {size / 1e3:,.0f} kB. Soft predictions are "
        f"4 bytes an image and class: with {classes} classes, those of {size / 4 / classes:,.0f} public images take as "
        "much each way, plus the images."
    )


def _labels(results: Sequence[MethodResult]) -> Section:
    main = subject(results)
    seed = "the same for every seed" if _same_data(main) else f"seed {main.seeds[0]}"
    caption = f"Private images by label, all splits together, partition {plain(main.runs[0].partition)}, {seed}."
    drawn = figures.labels_per_client(main.runs[0].label_counts, "Images of each client by label")
    return Section("Data of the clients", [Picture("labels", drawn, caption)])


def _groups(settings: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the settings by group, those outside any group first."""
    single = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    nested = {key: value for key, value in settings.items() if isinstance(value, dict)}
    return {group: written(values) for group, values in {"": single, **nested}.items() if values}


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
        return written(result.hyperparameters)
    made: Any = methods.create(result.method, result.hyperparameters)
    return written(asdict(made))
