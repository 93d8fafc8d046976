"""The bytes that the server and real clients exchanged, next to the traffic that a method counts."""

from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.reports.columns import TITLE, Column
from ktpfl_pipeline.reports.model import Block, Notes, Table
from ktpfl_pipeline.reports.numbers import MB, Entry, megabytes
from ktpfl_pipeline.reports.style import architecture_title
from ktpfl_pipeline.reports.words import over_seeds

RESUMED = (
    "because a run was resumed from a checkpoint or had finished earlier. The server counts only the bytes since it "
    "was started."
)


class Row(NamedTuple):
    """All clients of a method, or one client."""

    result: MethodResult
    client: int | None = None  # the client's position; None for all clients together

    @property
    def title(self) -> str:
        return self.result.title


def blocks(comparison: Comparison) -> list[Block]:
    """Return counted traffic and sent bytes, by method and by client; nothing if there were no real clients."""
    real = [result for result in comparison if all(run.wire for run in result.runs)]
    others = [result.title for result in comparison if result not in real and not result.runs[0].labels_known]
    unknown: list[Block] = [Notes({"Not known": f"for {', '.join(others)}, {RESUMED}"})] if others else []
    if not real:
        return unknown
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
    by_method = Table.of("wire", [TITLE, *_columns()], [Row(result) for result in real])
    first = main.runs[0]
    columns = [
        Column("client", "Client", value=lambda row: str(first.client_names[row.client])),
        Column("architecture", "Architecture", value=lambda row: architecture_title(first.architectures[row.client])),
        *_columns(),
    ]
    rows = [Row(main, place) for place in range(main.clients)]
    return [by_method, Table.of("wire_by_client", columns, rows), Notes(notes), *unknown]


def _columns() -> list[Column]:
    """Return the columns of a `Row` for counted traffic and sent bytes, up and down, averaged over seeds."""

    def column(key: str, title: str, of_run: Callable[[FinishedRun], list[int]]) -> Column:
        def value(row: Row) -> Entry:
            by_run = [of_run(run) for run in row.result.runs]
            return megabytes(fmean(sum(each) if row.client is None else each[row.client] for each in by_run))

        return Column(key, title, "MB", value=value)

    return [  # as seen from the clients
        column("counted_up", "Counted up", lambda run: ledger(run, "_up")),
        column("sent_up", "Sent up", lambda run: run.wire["received"]),
        column("counted_down", "Counted down", lambda run: ledger(run, "_down")),
        column("sent_down", "Sent down", lambda run: run.wire["sent"]),
    ]


def ledger(run: FinishedRun, ending: str) -> list[int]:
    """Return the counted traffic of each client in one direction, ``_up`` or ``_down``, over all rounds, (N,) bytes."""
    places = {n: place for place, n in enumerate(run.client_ids)}
    total = [0] * len(places)
    for record in run.history:
        for name, values in record.traffic.items():
            for n, value in zip(record.cohort, values, strict=True) if name.endswith(ending) else ():
                total[places[n]] += value
    return total
