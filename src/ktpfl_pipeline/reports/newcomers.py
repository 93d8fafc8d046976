"""What became of clients that were held out of training and joined after it."""

from collections.abc import Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import holm, paired
from ktpfl_pipeline.core.metrics import Newcomers
from ktpfl_pipeline.reports.model import Block, Table
from ktpfl_pipeline.reports.numbers import Entry, interval, mean, megabytes
from ktpfl_pipeline.reports.words import CORRECTED, over_seeds, plural


def blocks(results: Sequence[MethodResult]) -> list[Block]:
    """Return the table of newcomers with its caption; nothing where no client was held out."""
    found = [joined for result in results for joined in joined_by_seed(result).values()]
    if not found:
        return []
    clients, there = len(found[0].clients), len(next(iter(found[0].there.values())))
    seeds = max(len(result.seeds) for result in results)
    caption = (
        f"{plural(clients, 'client')} held out of training, drawn by seed, joined the {there} others after the last "
        "round. Test accuracy, mean over them, after so many epochs of local training, ± the standard deviation over "
        "seeds; minus that of local-only's newcomers, which begin with initial models, "
        f"{CORRECTED} There: the clients that were there, after as many further epochs. Joining (MB): all bytes of "
        f"joining, up and down{over_seeds(seeds)}."
    )
    return newcomer_table(results).captioned(caption)


def newcomer_table(results: Sequence[MethodResult]) -> Table:
    """Return one row a method: its newcomers and the clients that were there by epochs, and the bytes of joining."""
    joined = {result.method: runs for result in results if (runs := joined_by_seed(result))}
    titles = {result.method: result.title for result in results}
    rows: dict[str, dict[str, Entry]] = {name: {"Method": titles[name]} for name in joined}
    for e in next(iter(next(iter(joined.values())).values())).accuracy if joined else ():
        after = "as they joined" if e == 0 else f"after {plural(e, 'epoch')}"
        means = {name: {seed: fmean(each.accuracy[e]) for seed, each in runs.items()} for name, runs in joined.items()}
        local = means.get("local", {})  # without it every difference is None
        gained = holm({name: paired(by_seed, local) for name, by_seed in means.items() if name != "local"})
        for name, row in rows.items():
            there = [fmean(each.there[e]) for each in joined[name].values()]
            row[f"Newcomers {after} (%)"] = mean([*means[name].values()])
            row[f"Minus local-only {after} (points)"] = interval(gained.get(name))
            row[f"There {after} (%)".replace("as they joined", "as they are")] = mean(there)
    for name, row in rows.items():
        row["Joining (MB)"] = megabytes(fmean(sum(each.traffic.values()) for each in joined[name].values()))
    return Table.of("newcomers", list(rows.values()))


def joined_by_seed(result: MethodResult) -> dict[int, Newcomers]:
    """Return what became of a method's newcomers, by seed; empty where nobody was held out."""
    return {run.seed: run.newcomers for run in result.runs if run.newcomers is not None}
