"""The report on the methods of one experiment."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.frames import to_csv
from ktpfl_pipeline.analysis.matrix import ALIKE
from ktpfl_pipeline.analysis.provenance import Provenance
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import mean_by_place
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.data.sources.adaptation import converted
from ktpfl_pipeline.reports import decisions, figures, measures, newcomers, notes, paper, tables, theorem, wire, words
from ktpfl_pipeline.reports.answer import adapted, advice, summary, tiles
from ktpfl_pipeline.reports.figures.accuracy import FEW
from ktpfl_pipeline.reports.model import Block, Notes, Picture, Section, Settings, Table, Text
from ktpfl_pipeline.reports.numbers import percent
from ktpfl_pipeline.reports.paper import DATASETS
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.style import NAMED, RESULTS, architecture_title, look
from ktpfl_pipeline.reports.words import aggregates, over_seeds, plain

SOURCES = {
    **DATASETS,
    "python": "data given in Python",
    "real_clients": "real clients",
    "digits": "handwritten digits",
    "mnist": "MNIST",
    "cifar100": "CIFAR-100",
}
"""The titles of private data sources."""
PARAMETERS = {
    **{"dirichlet": "alpha", "quantity": "alpha"},
    **{"k_labels": "labels_per_client", "shards": "shards_per_client"},
    "lognormal": "sigma",
}
"""The setting that describes a partition, by scheme."""
SHOWN = 40
"""The most characters of a source in the name of a folder."""


def build(name: str, comparison: Comparison, made: Provenance | None = None) -> Report:
    """Return the report on the methods of one experiment. `made` has the time, machine and command of the report.

    Raises ValueError if there are no results, or the methods have different numbers of clients.
    """
    if not comparison.results:
        raise ValueError("A report needs the result of at least one method.")
    if len({result.clients for result in comparison}) > 1:
        raise ValueError("A report needs methods with the same clients; these have different numbers of them.")
    settings = comparison.settings
    outcome, facts, remarks = summary(comparison), _facts(comparison), notes.remarks(comparison)
    caption = f"{outcome} Setting: {'; '.join(facts)}. Accuracy: {notes.final_values(comparison)} Bold: {words.BOLD}"
    table = tables.comparison_table(comparison, caption)
    source = str(settings.get("private", {}).get("source", ""))
    return Report(
        name=name,
        kind=f"Comparison · {name}",
        title=f"{plural(len(comparison), 'method')} on {data_title(source) or name}",
        made={"Report": identity(comparison), **(made.by_title() if made else {})},
        tiles=tiles(comparison),
        summary=outcome,
        facts=facts,
        sections=_sections(name, comparison, table, remarks),
        brief=[
            table.without(tables.PAPER.key),
            *(Text(f"{term}: {text}") for term, text in remarks.items()),
            *map(Text, (adapted(comparison), decisions.chosen(comparison), decisions.outcome(comparison))),
            *decisions.brief(comparison),
        ],
        warnings=notes.alerts(comparison),
        folder=folder(settings, identity(comparison)),
        data={
            RESULTS: json.dumps(comparison.to_dict(name), indent=1) + "\n",
            **{f"{name}.csv": to_csv(frame) for name, frame in comparison.frames.items()},
        },
    )


def _sections(name: str, comparison: Comparison, table: Table, remarks: dict[str, str]) -> list[Section]:
    """Return the sections of the report in order. The `remarks` come before the notes of the main `table`."""
    main = comparison.main
    other = "; ".join(paper.differences(comparison.settings))
    not_shown = (
        f"the paper's numbers are not shown, because its setting differs: {other}."
        if other
        else "the paper has no number for this setting."
    )
    papers = paper.family(comparison.settings) in paper.DATASETS and not table.shows(tables.PAPER.key)
    explained = {**remarks, **table.meanings, **notes.general_notes(comparison)}
    traffic = [*measures.work(comparison), *measures.communication(comparison)]
    return [
        Section("Against local-only", _differences(comparison), files=["differences.csv"]),
        Section("Decision of each client", decisions.decisions(comparison), files=["decisions.csv"]),
        Section("Accuracy", [table, Notes(explained)], files=["runs.csv"]),
        Section("Other measures and calibration", measures.quality(comparison), files=["clients.csv"]),
        Section("By architecture", measures.by_architecture(comparison), files=["architectures.csv"]),
        Section("Accuracy by class", measures.by_class(comparison), files=["classes.csv", "confusion.csv"]),
        Section("After adaptation", measures.adaptation(comparison), files=["differences.csv"]),
        Section("Choice by validation samples", decisions.choice(comparison), files=["choices.csv", "clients.csv"]),
        Section("Fairness over clients", measures.fairness(comparison), files=["clients.csv"]),
        Section("Accuracy by round", _by_round(comparison), files=["rounds.csv"]),
        Section("Accuracy by client", _by_client(comparison), files=["clients.csv"]),
        Section("New clients", newcomers.new_clients(comparison)),
        Section("Who learns from whom", _matrix(comparison)),
        Section("Numbers of the methods", measures.of_methods_own(comparison), files=["rounds.csv"]),
        Section("Work and traffic", traffic, files=["runs.csv"]),
        Section("Bytes sent by real clients", wire.blocks(comparison)),
        Section(
            f"{main.title} minus each baseline",
            measures.minus_baselines(comparison),
            folded=True,
            files=["differences.csv"],
        ),
        Section("Spread over the clients", _spread(comparison), folded=True),
        Section("Theorem 1", theorem.blocks(main), folded=True, files=["theorem.csv"]),
        Section("Time", measures.phases(comparison), folded=True, files=["runs.csv"]),
        Section("Data of the clients", measures.data(main), folded=True),
        Section("Settings", [Settings(_groups(comparison.settings))], folded=True),
        Section("Hyperparameters", _hyperparameters(comparison), folded=True),
        Section("Appendix: the paper's numbers", [Notes({"Paper": not_shown})] if papers else [], folded=True),
        tables.runs([(name, result) for result in comparison]),
    ]


def data_title(source: str) -> str:
    kind, _, place = source.partition(":")
    return SOURCES.get(kind, PurePath(place or kind).name)


def identity(comparison: Comparison) -> str:
    """Return a hash of the runs in a report. A repeated report on the same runs has the same hash."""
    return f"report-{digest([[result.method, *(run.key for run in result.runs)] for result in comparison])}"


def folder(settings: dict[str, Any], report: str) -> str:
    """Return the folder of a report below those of its pipeline: data, partition, and the end of the report's hash."""
    source = str(settings.get("private", {}).get("source", "")).rstrip("/")
    names = (re.split("[/:]", source)[-1][:SHOWN], settings.get("partition", {}).get("scheme", ""), report[-8:])
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, names))).strip("._")


def partitioned(partition: dict[str, Any]) -> str:
    """Return a partition with the setting that describes it, in words: ``dirichlet 0.3 balanced rotation``."""
    scheme, skew = partition.get("scheme", ""), partition.get("feature_skew", "none")
    balanced = "balanced" if scheme == "dirichlet" and partition.get("balanced") else ""
    found = [scheme, partition.get(PARAMETERS.get(scheme, ""), ""), balanced, "" if skew == "none" else skew]
    return plain(" ".join(str(part) for part in found if part != ""))


def _trained_on(sizes: Sequence[int]) -> str:
    """Return the smallest and the largest number of training samples of a client; empty if unknown."""
    ends = dict.fromkeys(f"{end(sizes):,}" for end in (min, max)) if sizes else {}
    return f"{' to '.join(ends)} training samples per client" if ends else ""


def _facts(comparison: Comparison) -> list[str]:
    main, settings = comparison.main, comparison.settings
    run, adversaries = main.runs[0], settings.get("adversaries", {})
    first, source = run.history[0], str(settings.get("private", {}).get("source", ""))
    models, *others = [Counter(map(architecture_title, each.architectures)) for each in main.runs]
    have = ", ".join(f"{count} {model}" for model, count in models.items())
    have += f" with seed {run.seed}" * any(other != models for other in others)  # other clients are newcomers
    compressed = words.lean(settings)
    present, share, kind = len(first.sampled), adversaries.get("share"), adversaries.get("kind")
    diverged = {r.title: sum(len(t.diverged) for each in r.runs for t in each.history) for r in comparison}
    listed = ", ".join(f"{title} {count}" for title, count in diverged.items() if count)
    facts = [
        SOURCES[source] if source == "real_clients" else DATASETS.get(source.partition(":")[0], source),
        converted(run.native, run.shape, run.kind) if run.shape else "",
        f"partition {partitioned({'scheme': run.partition, **settings.get('partition', {})})}",
        f"{plural(main.clients, 'client')}: {have}",
        _trained_on([size for each in main.runs for size in each.samples.get("train", [])]),
        f"{present} of them per round" if present < main.clients else "",
        plural(main.rounds, "round") if run.patience is None else _stopping(comparison),
        words.listed_seeds(sorted({seed for result in comparison for seed in result.seeds})),
        f"{100 * share:g} % of the clients are malicious and upload {kind} predictions; means are over the others"
        if share
        else "",
        *words.unreliable(settings),
        f"predictions: {', '.join(compressed)}" if compressed else "",
        words.private(settings, [each for run in comparison.runs for each in run.history[-1].epsilon]),
        f"training diverged and a client was skipped or restored: {listed}" if listed else "",
        "tuned hyperparameters" if settings.get("hyperparameters") == "tuned" else "",
    ]
    return list(filter(None, facts))


def _stopping(comparison: Comparison) -> str:
    """Return the rule by which runs stopped early, and the rounds of each method's runs."""
    patience = comparison.main.runs[0].patience or 0
    taken = [f"{each.title} {', '.join(str(len(run.history)) for run in each.runs)}" for each in comparison]
    return (
        f"early stopping after {plural(patience, 'evaluation')} without a higher mean validation accuracy; the results "
        f"are those of the best round; rounds by seed: {'; '.join(taken)}"
    )


def _differences(comparison: Comparison) -> list[Block]:
    """Return the figure of differences to local-only, if there are any, and the advice."""
    headline = comparison.headline
    what = "test accuracy" if headline == AFTER_TRANSFER else words.MEASURES[headline].title
    caption = (
        f"Mean {what} after transfer minus that of local-only, {words.FILLED}. "
        "Bold: the method that this report is about."
    )
    shown = any(comparison.gains(headline).values()) and not comparison.nothing_learned
    drawn: list[Block] = [Picture("differences", figures.differences(comparison), caption)] if shown else []
    advised = len(comparison) > 1 and not comparison.nothing_learned
    return [*drawn, Notes(advice(comparison))] if advised else []


def _by_round(comparison: Comparison) -> list[Block]:
    """Return the accuracy curves of all methods, with the text that a page shows for each point."""
    main, present = comparison.main, len(comparison.main.runs[0].history[0].sampled)
    bands = " Bands: the range over seeds." if len(main.seeds) > 1 else ""
    only = f"; only these have colors{', dashed lines and bands' if bands else ' and dashed lines'}"
    if bands and not words.too_few(len(main.seeds)):
        bands += " Differences are tested paired by seed: methods whose bands overlap can differ significantly."
    caption = (
        f"Mean test accuracy over the clients by round{over_seeds(comparison)}. Solid: at the end of the round, after "
        f"transfer. Dashed: after local training, before transfer.{bands} Thick: "
        f"{' and '.join(result.title for result in comparison.chief)}{only if len(comparison) > FEW else ''}."
    )
    if present < main.clients:
        caption += (
            f" A round has {present:,} of {plural(main.clients, 'client')}; the others are evaluated without training."
        )
    lines = []
    for result in comparison if len(comparison) > 1 else ():
        curve, title = result.curve[AFTER_TRANSFER], result.title
        means = mean_by_place(curve.by_seed)
        said = [f"{title}, round {t}: {percent(mean)} %" for t, mean in zip(curve.rounds, means, strict=True)]
        lines.append((title, look(result.method).color, said))
    return [Picture("accuracy", figures.accuracy_curves(comparison), caption, lines)]


def _by_client(comparison: Comparison) -> list[Block]:
    main = comparison.main
    caption = f"Each client's final accuracy after transfer{over_seeds(comparison)}."
    if comparison.local not in (None, main):
        caption += f" Sorted by the gain of {main.title} over local-only"
        caption += ", in percentage points at the right." if main.clients <= NAMED else "."
    if len({str(run.label_counts) for run in main.runs}) > 1:
        caption += (
            " Each seed draws other private samples of a client, so a row is a mean over different sets of samples."
            if main.runs[0].names
            else " Each seed gives a client other data, so a row is a mean over different sets of samples."
        )
    if main.runs[0].adversaries:
        caption += f" Malicious clients are shown too{'; each seed has others' * (len(main.seeds) > 1)}."
    return [Picture("clients", figures.client_accuracy(comparison), caption)]


def _spread(comparison: Comparison) -> list[Block]:
    honest = ", without malicious clients" if comparison.main.runs[0].adversaries else ""
    caption = (
        f"Test accuracy after transfer by round, one panel per method. Thin: clients{over_seeds(comparison)}; the "
        f"band is their middle half, the thick line their mean{honest}. All panels have the same axis, which may not "
        "start at 0."
    )
    return [Picture("spread", figures.spread_over_clients(comparison.results), caption)]


def _matrix(comparison: Comparison) -> list[Block]:
    main = comparison.main
    found = [result for result in comparison if result.runs[0].coefficients is not None and result.clients > 1]
    blocks: list[Block] = []
    for first in sorted(found, key=lambda result: result is not main)[:1]:
        seed = _first_run(first)
        caption = (
            f"Left: the weight of each teacher (column) for each student (row) at the end of {first.title}, {seed}. "
            f"Right: the similarity of the clients' label distributions. {words.order_of(first.clients)}"
            if first.runs[0].labels_known
            else f"The weight of each teacher (column) for each student (row) at the end of {first.title}, {seed}."
        )
        blocks.append(Picture(f"coefficients_{first.method}", figures.coefficient_heatmaps(first), caption))
        if others := [result for result in found if result is not first]:
            caption = "The same weights at the end of the other methods that have a matrix, each with its first seed."
            blocks.append(Picture("coefficients_others", figures.coefficient_panels(others), caption))
    if main in found and main.runs[0].matrices:
        seed, spread = _first_run(main), ", with the range over seeds" * (len(main.seeds) > 1)
        spread += ", up to the last round that all seeds have" * main.early_stopping
        equal = "plain average" if aggregates(main) else "consensus of FedMD"
        caption = (
            f"Above: the weights of {main.title} after some of the rounds, {seed}. Below: the weight that a row gives "
            f"to the client itself, to similar clients (cosine similarity of label distributions above {ALIKE}) and "
            f"to others, mean over students and seeds{spread}. Dotted: weights of 1/N, the {equal}."
            if all(run.attention for run in main.runs)
            else f"The weights of {main.title} after some of the rounds, {seed}."
        )
        blocks.append(Picture("matrix_over_rounds", figures.matrix_over_rounds(main), caption))
    return blocks


def _first_run(result: MethodResult) -> str:
    return f"seed {result.seeds[0]}" + f" (MLflow run {result.run_ids[0]})" * bool(result.run_ids[0])


def _groups(settings: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the settings by group. Settings without a group come first."""
    groups = {name: values for name, values in settings.items() if isinstance(values, dict)}
    single = {name: value for name, value in settings.items() if name not in groups}
    return {group: words.as_texts(values) for group, values in {"": single, **groups}.items() if values}


def _hyperparameters(comparison: Comparison) -> list[Block]:
    """State the origin of the hyperparameters, and list all of them, including defaults."""
    origins = {
        "configured": "Configured for every method: the values of conf/, not chosen for this comparison.",
        "tuned": "Tuned for every method: chosen for this experiment on validation data, from at most the same number "
        "of candidates for each method.",
    }
    values: dict[str, dict[str, str]] = {}
    for result in comparison:
        made: Any = methods.known(result.method) and methods.create(result.method, result.hyperparameters)
        values[result.title] = words.as_texts(asdict(made) if made else result.hyperparameters)
    return [Text(origins[comparison.settings.get("hyperparameters", "configured")]), Settings(values)]
