"""The section of a comparison on clients that joined after training."""

from statistics import fmean

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import holm, paired
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.reports.model import Block, Column, Table
from ktpfl_pipeline.reports.numbers import Entry, mean, megabytes
from ktpfl_pipeline.reports.tables import MINUS_LOCAL, TITLE, gained
from ktpfl_pipeline.reports.words import CORRECTED, over_seeds


def new_clients(comparison: Comparison) -> list[Block]:
    """Return the table of clients that joined after training, one row per method; nothing if no client joined."""
    held = {each.method: {run.seed: run.newcomers for run in each.runs if run.newcomers} for each in comparison}
    rows = [each for each in comparison if held[each.method]]
    if not rows:
        return []
    first = next(iter(held[rows[0].method].values()))

    def after(e: int) -> list[Column]:
        when = f"after {plural(e, 'epoch')}" if e else "when joining"
        new = {name: {seed: fmean(one.accuracy[e]) for seed, one in runs.items()} for name, runs in held.items()}
        local = new.get("local", {})  # without it every difference is None
        gains = holm({name: paired(by_seed, local) for name, by_seed in new.items() if name != "local"})
        there = {name: [fmean(one.there[e]) for one in runs.values()] for name, runs in held.items()}
        beside = f"Existing clients {when if e else 'after transfer'}"
        return [
            Column(f"new_{e}", f"New clients {when}", "%", value=lambda result: mean([*new[result.method].values()])),
            gained(f"new_{e}_minus_local", f"{MINUS_LOCAL.title} {when}", gains),
            Column(f"existing_{e}", beside, "%", value=lambda result: mean(there[result.method])),
        ]

    def joining(result: MethodResult) -> Entry:
        return megabytes(fmean(sum(one.traffic.values()) for one in held[result.method].values()))

    caption = (
        f"{plural(len(first.clients), 'client')} held out of training, drawn by seed, joined the "
        f"{plural(len(next(iter(first.there.values()))), 'other')} after the last round. Test accuracy, mean over "
        "these new clients, when they join and after extra epochs of local training, ± the standard deviation over "
        "seeds. Differences are to local-only's new clients, which start from initial models, "
        f"{CORRECTED} Existing clients: after as many extra epochs. Joining: bytes sent and received for the new "
        f"clients{over_seeds(comparison)}, in MB."
    )
    shown = [TITLE, *(column for e in first.accuracy for column in after(e))]
    return Table.of("newcomers", [*shown, Column("joining", "Joining", "MB", value=joining)], rows).captioned(caption)
