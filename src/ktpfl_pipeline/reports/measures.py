"""The sections of a comparison after the main table. A section without measurements is empty."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from ktpfl_pipeline.analysis.clients import Reached, means, of_clients
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult, recalls
from ktpfl_pipeline.analysis.skew import label_skew
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports import figures, words
from ktpfl_pipeline.reports.answer import adapted
from ktpfl_pipeline.reports.figures.accuracy import title_in
from ktpfl_pipeline.reports.figures.traffic import on_line
from ktpfl_pipeline.reports.model import Block, Column, Picture, Table, Text
from ktpfl_pipeline.reports.numbers import (
    MB,
    Entry,
    Number,
    duration,
    hundredths,
    mean,
    megabytes,
    percent,
    three_digits,
)
from ktpfl_pipeline.reports.style import architecture_title
from ktpfl_pipeline.reports.tables import (
    METHOD,
    MINUS_LOCAL,
    TIME,
    TITLE,
    TRAFFIC,
    accuracy_at,
    gained,
    gained_at,
    tinted,
)
from ktpfl_pipeline.reports.words import CORRECTED, aggregates, metric_title, over_seeds, plain

TESTED = ("auc", "calibration_error")
"""Measures whose differences to local-only are tested."""
MOST = 50
"""The largest number of classes in a table. With more classes, the table shows the subject's least accurate classes."""


def _table(name: str, comparison: Comparison, shown: Sequence[Column], latex: str, without: str = "") -> Table:
    """Return a table with one row per method, the best first. The method `without` and empty columns are left out."""
    rows = [result for result in comparison.ranked() if result.method != without]
    return Table.of(name, shown, rows, latex=latex, tinted=tinted(comparison)).filled()


def adaptation(comparison: Comparison) -> list[Block]:
    """Return accuracy after transfer and after equal extra epochs of local training, with differences to local-only."""
    points = comparison.adaptations
    if len(points) < 2:
        return []
    goes_on = comparison.settings.get("on_divergence", "stop") != "stop"
    diverged = " A model whose training diverged counts with its accuracy after transfer." * goes_on
    meaning = (
        "every model, also with local-only, was trained for these extra local epochs on its client's own samples, "
        f"evaluated and discarded.{diverged} Differences are to local-only after the same number of extra epochs, "
        f"{CORRECTED}"
    )
    shown = [METHOD]
    for epochs, point in points.items():
        title = metric_title(point)
        gained = f"{MINUS_LOCAL.title} {title[0].lower()}{title[1:]}"
        shown += [accuracy_at(point, meaning=meaning if epochs else ""), gained_at(point, comparison, gained)]
    table = _table("adaptation", comparison, shown, f"Accuracy after adaptation: {meaning}")
    return [Text(adapted(comparison)), *table.explained()]


def by_architecture(comparison: Comparison) -> list[Block]:
    """Return each method's difference to local-only by architecture; nothing if there is only one architecture."""
    if not (gains := comparison.gains_by_architecture):
        return []
    meaning = (
        "mean accuracy after transfer of the clients with an architecture minus that of the same clients with "
        f"local-only, {CORRECTED} Each column has few clients. It shows where a method helps one architecture "
        "and harms another, which a mean over all clients hides."
    )
    latex = f"Accuracy minus local-only by architecture: {meaning}"
    by_name = [gained(f"minus_local_{name}", architecture_title(name), found) for name, found in gains.items()]
    shown = [METHOD, *by_name, gained(MINUS_LOCAL.key, "All clients", comparison.gains())]
    table = _table("architectures", comparison, shown, latex, without="local")
    return table.explained(**{"By architecture": meaning})


def fairness(comparison: Comparison) -> list[Block]:
    """Return the spread of accuracy over clients, and the share of clients that are worse than with local-only."""
    every = {result.method: result for result in comparison.given}  # with clients that were never sampled

    def worse_off(result: MethodResult) -> Entry:
        return None if result is comparison.local else mean(comparison.worse_off(result))

    shown = [
        METHOD,
        Column(
            "client_std",
            "Spread over clients",
            "points",
            "standard deviation over the clients, mean over seeds.",
            lambda result: percent(
                result.final[AFTER_TRANSFER].client_std, result.final[AFTER_TRANSFER].client_std_spread
            ),
        ),
        Column(
            "worst_decile",
            "Worst decile",
            "%",
            "mean over the tenth of the clients with the lowest accuracy, at least one client.",
            lambda result: percent(
                result.final[AFTER_TRANSFER].worst_decile, result.final[AFTER_TRANSFER].worst_decile_spread
            ),
        ),
        Column(
            "worse_off",
            "Worse off",
            "%",
            "share of the clients whose accuracy is below their accuracy with local-only and the same seed, by any "
            "amount. For a method without any effect, about half of the clients whose accuracy changes would count "
            "here, by chance.",
            worse_off,
        ),
        Column(
            "sampled",
            "Sampled",
            "%",
            "clients that were in at least one round's cohort.",
            lambda result: mean(of_clients(every[result.method], True)),
        ),
        Column(
            "never_sampled",
            "Never sampled",
            "%",
            "clients that were in no cohort; they are evaluated with the model that the server would send them now. "
            "Mean over the seeds that have such clients.",
            lambda result: mean(of_clients(every[result.method], False)),
        ),
    ]
    table = _table("fairness", comparison, shown, "How evenly accuracy after transfer is spread over the clients.")
    if not table.shows("never_sampled"):
        table = table.without("sampled")
    return table.explained(Means=f"all columns show accuracy after transfer{over_seeds(comparison)}.")


def quality(comparison: Comparison) -> list[Block]:
    """Return the measures in addition to accuracy: by class, on samples of all clients, and calibration."""

    def of(key: str) -> list[Column]:
        title, meaning = words.MEASURES[key]
        measure = Column(key, title, "%", meaning, lambda result: mean(means(result, key)))
        return [
            measure,
            *([gained_at(key, comparison, f"{title} minus local-only", CORRECTED)] if key in TESTED else []),
        ]

    caption = "Balanced accuracy, AUC, accuracy on all clients' samples and calibration after transfer."
    shown = [METHOD, *(column for key in words.MEASURES for column in of(key))]
    return _table("quality", comparison, shown, caption).explained()


def work(comparison: Comparison) -> list[Block]:
    """Return steps, operations and memory, and the rounds and bytes until local-only's accuracy was reached."""

    def samples(result: MethodResult) -> Entry:
        return mean(comparison.relative_work(result), hundredths)

    def flops(result: MethodResult) -> Entry:
        by_seed = [run.work.get("flops", 0) for run in result.runs]
        return mean([each / result.clients / 1e9 for each in by_seed], three_digits) if any(by_seed) else None

    def first(result: MethodResult, of: Callable[[Reached], float], written: Callable[[float], str]) -> Entry:
        """Return a mean over the seeds that reach local-only's accuracy, of what `of` returns for each."""
        by_seed = comparison.to_local_only(result)
        if result is comparison.local or not by_seed:
            return None
        found = [of(each) for each in by_seed if each]
        part = "" if len(found) == len(by_seed) else f" ({len(found)} of {len(by_seed)})"
        return Number(fmean(found), lambda value: f"{written(value)}{part}") if found else "not reached"

    shown = [
        METHOD,
        Column(
            "samples",
            "Samples trained on",
            "× local-only",
            "private and public samples of all gradient steps of the clients, in units of local-only's with the same "
            "seed.",
            samples,
        ),
        Column(
            "flops",
            "FLOPs",
            "10⁹ per client",
            "floating-point operations of these steps, mean over clients, counted as PyTorch's counter does.",
            flops,
        ),
        Column(
            "memory",
            "Memory",
            "MB per client",
            "estimate for one step of plain local training, from weights to activations, mean over clients.",
            lambda result: mean([fmean(run.memory) / 1e6 for run in result.runs if run.memory], three_digits),
        ),
        Column(
            "rounds_to_local",
            "Rounds to local-only's accuracy",
            "",
            "the first evaluated round whose mean accuracy is at least local-only's final one with the same seed, mean "
            "over the seeds that reach it; in brackets how many do.",
            partial(first, of=lambda each: each.rounds, written=lambda value: f"{value:.1f}".removesuffix(".0")),
        ),
        Column(
            "traffic_to_local",
            "Traffic to local-only's accuracy",
            "MB",
            "bytes of all clients until the end of that round.",
            partial(first, of=lambda each: each.sent / 1e6, written=three_digits),
        ),
    ]
    return _table("work", comparison, shown, "Work: see the notes on the columns in the report.").explained()


def of_methods_own(comparison: Comparison) -> list[Block]:
    """Return the metrics that methods report (`RoundReport.metrics`): the last values, averaged over seeds."""

    def last(result: MethodResult, name: str) -> Entry:
        return mean([run.metrics[name] for run in result.runs if name in run.metrics], "{:.4g}".format)

    seeds = plural(len(comparison.results[0].seeds), "seed")
    names = dict.fromkeys(name for run in comparison.runs for name in run.metrics)
    meaning = f"numbers that a method reports of itself: the values of the last round, mean over {seeds}."
    own = [Column(f"metrics/{name}", plain(name).capitalize(), value=partial(last, name=name)) for name in names]
    table = _table("metrics", comparison, [METHOD, *own], "")
    return table.explained(**{"Own numbers": meaning})


def communication(comparison: Comparison) -> list[Block]:
    """Return accuracy against the traffic of all clients, and the traffic by kind and per client and round."""
    main, blocks = comparison.main, list[Block]()
    over = f"over all rounds{over_seeds(comparison)}"
    sent = f"all clients {over}; {MB}, 1 kB = 10³. Up is from the clients to the server"
    if any(result.sent for result in comparison):
        line = f"{words.FRONTIER} " if on_line(comparison.results) else ""
        caption = (
            f"Final accuracy against the bytes of {sent}. Next to a name is its traffic in MB. "
            f"{line}Overlapping marks are moved sideways."
        )
        blocks.append(Picture("traffic", figures.accuracy_by_traffic(comparison.results), caption))
    titles = {
        "knowledge_up": "Predictions up",
        "knowledge_down": "Predictions down",
        "parameters_up": "Parameters up",
        "parameters_down": "Parameters down",
        "public_down": "Public set down",
    }

    def sum_of(result: MethodResult, name: str) -> Entry:
        return megabytes(result.traffic[name])

    def per_turn(result: MethodResult) -> Entry:
        return Number(result.sent / result.turns / 1e3, three_digits)

    shown = [
        TITLE,
        *(Column(f"{name}_bytes", title, "MB", value=partial(sum_of, name=name)) for name, title in titles.items()),
        TRAFFIC.but(title="Total", meaning=""),
        Column("per_turn", "Per client and round", "kB", value=per_turn),
    ]
    caption = (
        f"Sums over {sent}. Predictions are soft predictions, class means and coefficients; parameters are models."
    )
    run = main.runs[0]
    if aggregates(main) and len(set(run.architectures)) == 1 and run.labels_known:
        size, k = main.traffic["parameters_up"] / main.turns, len(run.label_counts[0])
        caption += (
            f" A client uploads {size / 1e3:,.0f} kB of parameters per round. "
            f"Soft predictions have 4 bytes per sample and class: with {k} classes, those of {size / 4 / k:,.0f} "
            "public samples have as many bytes each way, plus the inputs."
        )
    return [*blocks, *Table.of("communication", shown, comparison).captioned(caption)]


def phases(comparison: Comparison) -> list[Block]:
    """Return the wall time by phase of a round, summed over the rounds."""

    def spent(result: MethodResult, name: str) -> Entry:
        return Number(result.seconds[name], duration) if name in result.seconds else None

    names = dict.fromkeys(name for result in comparison for name in result.seconds if name != "round")
    by_phase = [Column(f"seconds_{name}", plain(name).capitalize(), value=partial(spent, name=name)) for name in names]
    shown = [TITLE, *by_phase, TIME.but(title="Whole rounds", meaning="")]
    caption = (
        f"Wall time by phase, summed over the rounds{over_seeds(comparison)}. It depends on the machine and its load."
    )
    return Table.of("phases", shown, comparison).captioned(caption)


def minus_baselines(comparison: Comparison) -> list[Block]:
    """Return the difference of the report's subject to each baseline in points, paired by seed, one row each."""
    main, headline = comparison.main, comparison.headline
    found, before = comparison.leads(headline), comparison.leads(AFTER_LOCAL)

    def std(other: MethodResult) -> Entry:
        gain = found[other.method]
        return percent(gain.std) if gain and gain.std is not None else None

    def seeds(other: MethodResult) -> Entry:
        return str(gain.seeds) if (gain := found[other.method]) else "0"

    shown = [
        Column("minus", f"{main.title} minus", value=lambda other: other.title),
        gained("difference", metric_title(headline), found),
        Column("std", "Std over seeds", "points", value=std),
        gained(AFTER_LOCAL, metric_title(AFTER_LOCAL), before),
        Column("seeds", "Seeds in common", value=seeds),
    ]
    caption = f"{main.title} minus each baseline, after transfer and after local training, {CORRECTED}"
    return Table.of("differences", shown, comparison.baselines).captioned(caption)


def by_class(comparison: Comparison) -> list[Block]:
    """Return the chief methods' accuracies by class and all confusion matrices; nothing if labels are unknown."""
    if not all(run.confusion for run in comparison.runs):
        return []
    shown, seeds = comparison.chief, max(len(result.seeds) for result in comparison)
    names, main = shown[0].runs[0].classes, recalls(shown[0].runs)
    order = sorted(range(len(names)), key=lambda label: (main[label] is None, main[label] or 0.0))[:MOST]

    def of(result: MethodResult) -> Column:
        by_seed = [recalls([run]) for run in result.runs]

        def value(label: int) -> Entry:
            return mean([share for shares in by_seed if (share := shares[label]) is not None])

        return Column(result.method, result.title, "%", value=value)

    def samples(label: int) -> Entry:
        return Number(fmean(sum(run.confusion[label]) for run in shown[0].runs), "{:,.0f}".format)

    named = Column("class", "Class", value=lambda label: names[label])
    counted = Column("test_samples", "Test samples", value=samples)
    fewer = f" Shown are the {MOST} of {len(names)} classes that {shown[0].title} recognizes worst."
    last = "the best validated round" if shown[0].early_stopping else "the last round"
    caption = (
        f"Accuracy on the test samples of each class, of all clients together, with the models after {last}"
        f"{over_seeds(comparison)}. A client without samples of a class does not count in it."
        f"{fewer * (len(names) > MOST)}"
    )
    matrices = (
        f"Confusion matrices: of all clients' test samples of a true class (row), the share predicted as each class "
        f"(column), with the models after {last}, {plural(seeds, 'seed')} together."
    )
    table = Table.of("classes", [named, counted, *map(of, shown)], sorted(order))
    return [*table.captioned(caption), Picture("confusion", figures.confusion_matrices(comparison.results), matrices)]


def data(result: MethodResult) -> list[Block]:
    """Return a figure of the clients' classes, and their label skew as a sentence and a table."""
    run, every = result.runs[0], [each.label_counts for each in result.runs]
    sizes = [sum(counts) for by_client in every for counts in by_client]
    have = f"have {' to '.join(f'{size:,}' for size in sorted({min(sizes), max(sizes)}))} samples."
    if not run.labels_known:
        return [Text(f"The classes of real clients are known to them only. The clients {have}")]
    same = all(counts == every[0] for counts in every)
    seed = "the same for every seed" if same else f"seed {run.seed}"
    caption = f"Private samples by class, all splits together, partition {plain(run.partition)}, {seed}."
    names = run.names or [title_in(run, place) for place in range(result.clients)]
    bars = figures.labels_per_client(run.label_counts, "Samples of each client by class", names)
    skews = [label_skew(counts)._asdict() for counts in every]
    summary = (
        f"Label skew: a client's samples are as diverse as {fmean(skew['classes'] for skew in skews):.1f} equally "
        f"frequent classes of {len(run.label_counts[0])}{over_seeds([result])}. Clients {have}"
    )
    shown = [
        Column("measure", "Measure", value=lambda name: words.SKEW[name].title),
        Column("value", "Value", value=lambda name: mean([skew[name] for skew in skews], hundredths)),
        Column("meaning", "Meaning", value=lambda name: words.SKEW[name].meaning),
    ]
    return [Picture("labels", bars, caption), Text(summary), Table.of("skew", shown, words.SKEW)]
