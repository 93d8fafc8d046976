"""The part of a report about the clients' data: the classes of each client, and their label skew."""

from collections.abc import Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.skew import label_skew
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.columns import Column
from ktpfl_pipeline.reports.figures.accuracy import client_title
from ktpfl_pipeline.reports.model import Block, Picture, Table, Text
from ktpfl_pipeline.reports.numbers import mean
from ktpfl_pipeline.reports.words import over_seeds, plain

MEASURES = {
    "jensen_shannon": ("Jensen–Shannon divergence", "mean over pairs of clients, in bits: 0 alike, 1 no class shared"),
    "hellinger": ("Hellinger distance", "mean over pairs of clients: 0 alike, 1 no class shared"),
    "earth_mover": ("Earth mover's distance", "to the classes of all clients together, mean over clients: 0 to 2"),
    "classes": ("Effective classes", "exp of the entropy of a client's class distribution, mean over clients"),
    "sizes": ("Spread of sizes", "standard deviation of the clients' numbers of samples, in units of their mean"),
}
"""Title and meaning of each measure of `LabelSkew`."""
HUNDREDTHS = "{:.2f}".format


def blocks(result: MethodResult) -> list[Block]:
    """Return the classes of each client as a picture, and their label skew in a sentence and a table."""
    run = result.runs[0]
    if not run.labels_known:
        sizes = [sum(counts) for run in result.runs for counts in run.label_counts]
        samples = f"{min(sizes):,} to {max(sizes):,} samples"
        return [Text(f"The classes of real clients are known to them only. The clients have {samples}.")]
    same = len({str(each.label_counts) for each in result.runs}) == 1
    seed = "the same for every seed" if same else f"seed {run.seed}"
    caption = f"Private samples by class, all splits together, partition {plain(run.partition)}, {seed}."
    names = run.names or [client_title(result, client) for client in range(result.clients)]
    bars = figures.labels_per_client(run.label_counts, "Samples of each client by class", names)
    return [Picture("labels", bars, caption), Text(summary(result.runs)), table(result.runs)]


def summary(runs: Sequence[FinishedRun]) -> str:
    """State the label skew and the sizes of the clients in two sentences."""
    skews = [label_skew(run.label_counts) for run in runs]
    sizes = [sum(counts) for run in runs for counts in run.label_counts]
    return (
        f"Label skew: a client's samples are as diverse as {fmean(skew.classes for skew in skews):.1f} equally frequent"
        f" classes of {len(runs[0].label_counts[0])}{over_seeds(len(runs))}. Clients have {min(sizes):,} to"
        f" {max(sizes):,} samples."
    )


def table(runs: Sequence[FinishedRun]) -> Table:
    """Return one row per measure of skew, over the seeds, with its meaning."""
    skews = [label_skew(run.label_counts)._asdict() for run in runs]
    columns = [
        Column("measure", "Measure", value=lambda name: MEASURES[name][0]),
        Column("value", "Value", value=lambda name: mean([skew[name] for skew in skews], HUNDREDTHS)),
        Column("meaning", "Meaning", value=lambda name: MEASURES[name][1]),
    ]
    return Table.of("skew", columns, MEASURES)
