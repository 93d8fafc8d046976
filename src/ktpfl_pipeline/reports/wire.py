"""What went over the wire between the server and real clients, beside what a method's ledger counts."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from statistics import fmean

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.roles import subject
from ktpfl_pipeline.reports.model import Block, Notes, Table
from ktpfl_pipeline.reports.numbers import Entry, small_megabytes
from ktpfl_pipeline.reports.style import architecture_title
from ktpfl_pipeline.reports.words import over_seeds

WAYS = {"Up": ("_up", "received"), "Down": ("_down", "sent")}
"""Direction, as seen from the clients: what ledgers of it end with, and what the wire calls it at the server."""

RESUMED = (
    "which went on from a checkpoint with a seed, or had finished before: a server knows the bytes since it was "
    "started, and not those of the rounds before."
)


def blocks(results: Sequence[MethodResult]) -> list[Block]:
    """Return bytes by ledger and on the wire, by method and by client; nothing where no client was real."""
    real = [result for result in results if all(run.wire for run in result.runs)]
    others = [result.title for result in results if result not in real and not result.runs[0].labels_known]
    told: list[Block] = [Notes({"Not told": f"of {', '.join(others)}, {RESUMED}"})] if others else []
    if not real:
        return told
    main = subject(real)
    said = {
        "Ledger": "what the method has to exchange in its rounds, MB of 10⁶ bytes up from the clients and down to "
        f"them{over_seeds(len(main.seeds))}.",
        "Wire": "all messages of the run: beside the ledger's the questions themselves, evaluations, and the public "
        "set, which a ledger counts a batch each round and which travels whole, once for each method and seed. Not in "
        "it is what Flower adds: a request for each record and array, of some 1.2 kB, and those that ask for messages.",
        "By client": f"the same of {main.title}'s clients.",
        "Secure aggregation": "none: it hides uploads in their sum, and a server that weighs each client's predictions "
        "must see each. Models that are averaged alone would allow it; this does not do it.",
    }
    return [by_method(real), by_client(main), Notes(said), *told]


def by_method(results: Sequence[MethodResult]) -> Table:
    """Return one row a method: MB by ledger and on the wire, all clients together, mean over seeds."""
    return Table.of("wire", [{"Method": result.title, **_both_ways(result, sum)} for result in results])


def by_client(result: MethodResult) -> Table:
    """Return one row a client of one method: MB by ledger and on the wire, mean over seeds."""
    first, rows = result.runs[0], list[dict[str, Entry]]()
    for place, architecture in enumerate(first.architectures):
        name = (first.names or list(map(str, first.ids or range(result.clients))))[place]
        own = _both_ways(result, itemgetter(place))
        rows.append({"Client": name, "Architecture": architecture_title(architecture), **own})
    return Table.of("wire_by_client", rows)


def _both_ways(result: MethodResult, of: Callable[[list[int]], int]) -> dict[str, Entry]:
    """Return MB by ledger and on the wire, up and down, mean over seeds; `of` takes bytes by client, (N,), to a sum."""
    row: dict[str, Entry] = {}
    for way, (ending, name) in WAYS.items():
        row[f"{way}, ledger (MB)"] = small_megabytes(fmean(of(ledger(run, ending)) for run in result.runs))
        row[f"{way}, wire (MB)"] = small_megabytes(fmean(of(run.wire[name]) for run in result.runs))
    return row


def ledger(run: FinishedRun, ending: str) -> list[int]:
    """Return what each client exchanged by the ledgers of one direction, over all rounds, (N,) bytes."""
    places = {n: place for place, n in enumerate(run.ids or range(len(run.architectures)))}
    total = [0] * len(places)
    for record in run.history:
        for name, values in record.traffic.items():
            for n, value in zip(record.cohort, values, strict=True) if name.endswith(ending) else ():
                total[places[n]] += value
    return total
