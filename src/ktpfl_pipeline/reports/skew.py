"""The part of a report about the clients' data: who has which labels, and how unlike they are."""

from collections.abc import Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.skew import label_skew
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.figures.accuracy import client_title
from ktpfl_pipeline.reports.model import Block, Picture, Table, Text
from ktpfl_pipeline.reports.numbers import Entry, mean
from ktpfl_pipeline.reports.words import over_seeds, plain

MEASURES = {
    "jensen_shannon": ("Jensen–Shannon divergence", "mean over pairs of clients, in bits: 0 alike, 1 no class shared"),
    "hellinger": ("Hellinger distance", "mean over pairs of clients: 0 alike, 1 no class shared"),
    "earth_mover": ("Earth mover's distance", "to the labels of all clients together, mean over clients: 0 to 2"),
    "classes": ("Effective classes", "exp of the entropy of a client's labels, mean over clients"),
    "sizes": ("Spread of sizes", "standard deviation of the clients' numbers of samples, in units of their mean"),
}
"""Title and meaning of each measure of `LabelSkew`."""
HUNDREDTHS = "{:.2f}".format


def blocks(result: MethodResult) -> list[Block]:
    """Return the labels of each client as a picture, and in a sentence and a table how skewed the clients are."""
    run = result.runs[0]
    if not run.labels_known:
        sizes = [sum(counts) for run in result.runs for counts in run.label_counts]
        samples = f"{min(sizes):,} to {max(sizes):,} samples"
        return [Text(f"Which labels real clients have stays with them. They have {samples}.")]
    one_deal = len({str(each.label_counts) for each in result.runs}) == 1
    deal = "the same for every seed" if one_deal else f"seed {run.seed}"
    caption = f"Private samples by label, all splits together, partition {plain(run.partition)}, {deal}."
    names = run.names or [client_title(result, client) for client in range(result.clients)]
    bars = figures.labels_per_client(run.label_counts, "Samples of each client by label", names)
    return [Picture("labels", bars, caption), Text(summary(result.runs)), table(result.runs)]


def summary(runs: Sequence[FinishedRun]) -> str:
    """Say in a sentence how skewed the clients are."""
    skews = [label_skew(run.label_counts) for run in runs]
    sizes = [sum(counts) for run in runs for counts in run.label_counts]
    return (
        f"How skewed the clients are: a client's labels are worth {fmean(skew.classes for skew in skews):.1f} equally"
        f" frequent classes of {len(runs[0].label_counts[0])}{over_seeds(len(runs))}. Clients have {min(sizes):,} to"
        f" {max(sizes):,} samples."
    )


def table(runs: Sequence[FinishedRun]) -> Table:
    """Return one row a measure of skew, over the seeds, with what it means."""
    skews = [label_skew(run.label_counts)._asdict() for run in runs]
    rows: list[dict[str, Entry]] = [
        {"Measure": title, "Value": mean([skew[name] for skew in skews], HUNDREDTHS), "Meaning": meaning}
        for name, (title, meaning) in MEASURES.items()
    ]
    return Table.of("skew", rows)
