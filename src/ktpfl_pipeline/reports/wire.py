"""The bytes that the server and real clients exchanged, next to the traffic that a method counts."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.reports.model import Block, Column, Notes, Table
from ktpfl_pipeline.reports.numbers import MB, Entry, megabytes
from ktpfl_pipeline.reports.style import architecture_title
from ktpfl_pipeline.reports.tables import TITLE
from ktpfl_pipeline.reports.words import over_seeds

RESUMED = (
    "because a run was resumed from a checkpoint or had finished earlier. The server counts only the bytes since it "
    "was started."
)

SHOWN = [
    *(Column("counted_up", "Counted up", "MB"), Column("sent_up", "Sent up", "MB")),
    *(Column("counted_down", "Counted down", "MB"), Column("sent_down", "Sent down", "MB")),
]


def blocks(comparison: Comparison) -> list[Block]:
    """Return counted traffic and sent bytes, by method and by client; nothing if there were no real clients."""
    real = [result for result in comparison if all(run.wire for run in result.runs)]
    others = [result.title for result in comparison if result not in real and not result.runs[0].labels_known]
    unknown = Notes({"Not known": f"for {', '.join(others)}, {RESUMED}" if others else ""})
    if not real:
        return [unknown]
    main = Comparison(real).main
    notes = {
        "Counted traffic": "the bytes that the method must exchange in its rounds, up from the clients and down to them"
        f"{over_seeds([main])}; {MB}.",
        "Bytes sent": "all messages of the run. In addition to the counted traffic these are requests, evaluations, "
        "and the public set. The counted traffic has one public batch per round, but the whole public set is sent once "
        "for each method and seed. The messages that Flower adds are not included: a request of about 1.2 kB for each "
        "record and array, and the requests for messages.",
        "By client": f"the same columns for each client of {main.title}.",
        "Secure aggregation": "is not used. It reveals only the sum of the uploads, but a server that weights the "
        "predictions of each client must see each of them. It would be possible for methods that only average models.",
    }
    by_method = [{TITLE.key: result.title, **_sums(result)} for result in real]
    first = zip(main.runs[0].client_names, main.runs[0].architectures, strict=True)
    by_client = [
        {"client": str(name), "architecture": architecture_title(architecture), **_sums(main, place)}
        for place, (name, architecture) in enumerate(first)
    ]
    clients = [Column("client", "Client"), Column("architecture", "Architecture"), *SHOWN]
    tables = Table("wire", [TITLE, *SHOWN], by_method), Table("wire_by_client", clients, by_client)
    return [*tables, Notes(notes), unknown]


def _sums(result: MethodResult, client: int | None = None) -> dict[str, Entry]:
    """Return counted traffic and sent bytes, as seen from all clients or from one, averaged over seeds, by column."""

    def mean_of(by_run: Iterable[Sequence[int]]) -> Entry:
        return megabytes(fmean(sum(each) if client is None else each[client] for each in by_run))

    return {
        "counted_up": mean_of(ledger(run, "_up") for run in result.runs),
        "sent_up": mean_of(run.wire["received"] for run in result.runs),
        "counted_down": mean_of(ledger(run, "_down") for run in result.runs),
        "sent_down": mean_of(run.wire["sent"] for run in result.runs),
    }


def ledger(run: FinishedRun, ending: str) -> list[int]:
    """Return the counted traffic of each client in one direction, ``_up`` or ``_down``, over all rounds, (N,) bytes."""
    places = {n: place for place, n in enumerate(run.client_ids)}
    total = [0] * len(places)
    for record in run.history:
        for name, values in record.traffic.items():
            for n, value in zip(record.cohort, values, strict=True) if name.endswith(ending) else ():
                total[places[n]] += value
    return total
