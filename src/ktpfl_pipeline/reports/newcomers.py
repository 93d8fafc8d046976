"""New clients: they were held out of training and joined after it."""

from collections.abc import Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import holm, paired
from ktpfl_pipeline.core.metrics import Newcomers
from ktpfl_pipeline.reports.columns import MINUS_LOCAL, Column
from ktpfl_pipeline.reports.model import Block, Table
from ktpfl_pipeline.reports.numbers import Entry, interval, mean, megabytes
from ktpfl_pipeline.reports.words import CORRECTED, over_seeds, plural


def blocks(results: Sequence[MethodResult]) -> list[Block]:
    """Return the table of new clients with its caption; nothing where no client was held out."""
    found = [joined for result in results for joined in joined_by_seed(result).values()]
    if not found:
        return []
    clients, existing = len(found[0].clients), len(next(iter(found[0].there.values())))
    seeds = max(len(result.seeds) for result in results)
    caption = (
        f"{plural(clients, 'client')} held out of training, drawn by seed, joined the {existing} others after the last "
        "round. Test accuracy, mean over these new clients, when they join and after extra epochs of local training, ± "
        "the standard deviation over seeds. Differences are to local-only's new clients, which start from initial "
        f"models, {CORRECTED} Existing clients: after as many extra epochs. Joining: bytes sent and received for the "
        f"new clients{over_seeds(seeds)}, in MB."
    )
    return newcomer_table(results).captioned(caption)


def newcomer_table(results: Sequence[MethodResult]) -> Table:
    """Return one row per method: its new and its existing clients by epochs, and the bytes of joining."""
    joined = {result.method: runs for result in results if (runs := joined_by_seed(result))}
    titles = {result.method: result.title for result in results}
    rows: dict[str, dict[str, Entry]] = {name: {"method": titles[name]} for name in joined}
    shown = [Column("method", "Method")]
    for e in next(iter(next(iter(joined.values())).values())).accuracy if joined else ():
        after = f"after {plural(e, 'epoch')}" if e else "when joining"
        shown += [
            Column(f"new_{e}", f"New clients {after}", "%"),
            MINUS_LOCAL.but(key=f"new_{e}_minus_local", title=f"{MINUS_LOCAL.title} {after}", meaning=""),
            Column(f"existing_{e}", f"Existing clients {after if e else 'after transfer'}", "%"),
        ]
        means = {name: {seed: fmean(each.accuracy[e]) for seed, each in runs.items()} for name, runs in joined.items()}
        local = means.get("local", {})  # without it every difference is None
        gained = holm({name: paired(by_seed, local) for name, by_seed in means.items() if name != "local"})
        for name, row in rows.items():
            row[f"new_{e}"] = mean([*means[name].values()])
            row[f"new_{e}_minus_local"] = interval(gained.get(name))
            row[f"existing_{e}"] = mean([fmean(each.there[e]) for each in joined[name].values()])
    for name, row in rows.items():
        row["joining"] = megabytes(fmean(sum(each.traffic.values()) for each in joined[name].values()))
    return Table("newcomers", [*shown, Column("joining", "Joining", "MB")], list(rows.values()))


def joined_by_seed(result: MethodResult) -> dict[int, Newcomers]:
    """Return a method's results for new clients, by seed; empty where no client was held out."""
    return {run.seed: run.newcomers for run in result.runs if run.newcomers is not None}
