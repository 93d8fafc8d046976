"""Tables of docs/results from kept runs: public sets, people's sensors, cameras and new clients.

    python benchmarks/pages.py keep public_images FILE...   adds the runs of cells.json of a sweep, or of result.json of
                                                            a method, both in data/07_model_output
    python benchmarks/pages.py table                        writes the tables of the kept runs into the pages

`keep` writes benchmarks/results/runs/<page>.csv: one row per run, client and evaluation, with the mean accuracy over
the last rounds. New runs replace runs of the same setting, method and seed.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from measure import RESULTS, ROOT
from studies import LOCAL, Rows, Runs, drawn, named, overwrite, read, write

from ktpfl_pipeline.analysis.evidence import DIGITS
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import worst_decile
from ktpfl_pipeline.analysis.study import Study
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_TRANSFER
from ktpfl_pipeline.reports.numbers import Entry, corrected, interval, percent

KEPT, PAGES = RESULTS / "runs", ROOT / "docs" / "results"
COLUMNS = ("setting", "method", "seed", "client", "architecture", "evaluation", "accuracy")
NEW = "new clients"
"""The setting of rows of clients that joined after training."""


def rows_of(setting: str, run: FinishedRun) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run: headline accuracy and accuracies after adaptation, also of new clients."""
    points = [point for point in run.points if point == AFTER_TRANSFER or point.startswith(ADAPTED)]
    found = [(setting, run.ids, run.architectures, {point: run.final(point) for point in points})]
    if new := run.newcomers:
        after = {f"{ADAPTED}{epochs}": values for epochs, values in new.accuracy.items()}
        found.append((NEW, new.clients, new.architectures, after))
    for where, clients, architectures, accuracy in found:
        for point, values in accuracy.items():
            for client, architecture, value in zip(clients, architectures, values, strict=True):
                told = where, run.method, str(run.seed), str(client), architecture, point, f"{value:.{DIGITS}f}"
                yield dict(zip(COLUMNS, told, strict=True))


def runs_in(file: Path) -> Iterator[tuple[str, FinishedRun]]:
    """Yield the runs of a file with their settings; the setting of a comparison is empty."""
    content = json.loads(file.read_text("utf-8"))
    if "cells" in content:
        for cell in Study.from_dict(content).cells:
            yield from ((str(cell.value), run) for run in cell.runs)
    else:
        yield from (("", run) for run in MethodResult.from_dict(content).runs)


def kept(page: str) -> Path:
    return KEPT / f"{page}.csv"


def keep(page: str, *files: str) -> None:
    new = [row for file in files for each in runs_in(Path(file)) for row in rows_of(*each)]
    there = {tuple(row[name] for name in COLUMNS[:3]) for row in new}
    rows = [*(row for row in read(kept(page)) if tuple(row[name] for name in COLUMNS[:3]) not in there), *new]
    overwrite(kept(page), rows)


def runs_of(rows: Rows, setting: str = "") -> Runs:
    here = [row for row in rows if row["setting"] == setting]
    return Runs((row["method"], row["evaluation"], int(row["seed"]), float(row["accuracy"])) for row in here)


SOURCES = {
    "open_part": "an open part of the digits themselves",
    "npz:mnist.npz": "MNIST: the same classes, other images",
    "npz:fashion_mnist.npz": "Fashion-MNIST: other objects",
    "npz:noise.npz": "noise, independent pixels",
}
"""The public sets of `public_images`, by setting."""


def public_images(rows: Rows) -> str:
    """Return the table of public sets, with differences to local-only training that are corrected by column."""
    compared = ("kt_pfl", "fedmd", "kt_pfl_joint", "pfeddf")
    lines: list[list[Entry]] = [["public set", "local-only (%)", *map(named, compared)]]
    runs = {setting: runs_of(rows, setting) for setting in SOURCES}
    gains = [
        corrected({each: own.minus(LOCAL, methods=[name])[name] for each, own in runs.items()}) for name in compared
    ]
    for setting, shown in SOURCES.items():
        lines.append([shown, runs[setting].accuracy(LOCAL), *(column[setting] for column in gains)])
    return drawn(lines)


def last_adapted(runs: Runs) -> str:
    """Return the point of evaluation after the most epochs of adaptation."""
    points = [point for point in runs.clients[LOCAL] if point.startswith(ADAPTED)]
    return max(points, key=lambda point: int(point.removeprefix(ADAPTED)))


def natural(rows: Rows) -> str:
    """Return the table of people's sensors or of cameras, the best method first, with corrected differences."""
    runs = runs_of(rows)
    points = AFTER_TRANSFER, last_adapted(runs)
    gains = {point: runs.minus(LOCAL, point) for point in points}
    head = "method", "after transfer (%)", "minus local-only", "adapted (%)", "adapted, minus local-only"
    lines: list[list[Entry]] = [[*head, "worst decile (%)"]]
    for method in sorted(runs.clients, key=lambda name: -fmean(runs.means(name).values())):
        worst = fmean(worst_decile(values) for values in runs.clients[method][AFTER_TRANSFER].values())
        shown = [(runs.accuracy(method, at), "" if method == LOCAL else interval(gains[at][method])) for at in points]
        lines.append([named(method), *(each for pair in shown for each in pair), percent(worst)])
    return drawn(lines)


def newcomers(rows: Rows) -> str:
    """Return the table of new clients: accuracies, and below them corrected differences to local-only training."""
    trained, new = runs_of(rows), runs_of(rows, NEW)
    points = [f"{ADAPTED}{epochs}" for epochs in (0, 1, 4, 10)]
    headings = "on joining", "after 1 epoch", "after 4 epochs", "after 10 epochs", "trained clients"
    gains = [new.minus(LOCAL, point) for point in points]
    lines: list[list[Entry]] = [["method", *headings]]
    for method in ("kt_pfl", "fedmd", "fedproto", "fedavg", LOCAL):
        lines.append([named(method), *(new.accuracy(method, point) for point in points), trained.accuracy(method)])
        if method != LOCAL:
            lines.append(["", *(interval(found[method]) for found in gains), ""])
    return drawn(lines)


TABLES: dict[str, tuple[str, str, Callable[[Rows], str]]] = {
    "public_images": ("public_images.md", "with the same private samples", public_images),
    "har": ("natural_federations.md", "## People (UCI HAR)", natural),
    "camera_traps": ("natural_federations.md", "## Cameras (iWildCam 2020)", natural),
    "newcomers": (
        *("../../benchmarks/results/new_clients.md", "below it the difference to local-only training's new clients"),
        newcomers,
    ),
}
"""The page, the text above the table and the function of each table, by the name of the kept rows."""


def table() -> None:
    for name, (page, above, draw) in TABLES.items():
        if rows := read(kept(name)):
            write(PAGES / page, {above: draw(rows)})


COMMANDS: dict[str, Callable[..., None]] = {"keep": keep, "table": table}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
