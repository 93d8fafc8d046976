"""Tables of docs/results from kept runs: public sets, people's sensors, cameras and new clients.

    python benchmarks/pages.py keep public_images FILE...   adds the runs of cells.json of a sweep, or of result.json of
                                                            a method, both in data/07_model_output
    python benchmarks/pages.py table                        writes the tables of the kept runs into the pages

`keep` writes benchmarks/results/runs/<page>.csv: one row per run, client and evaluation, with the mean accuracy over
the last rounds. New runs replace runs of the same setting, method and seed. `METHOD=NAME` before the files stores the
runs of a method under another name, to keep the runs of an earlier rule.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from measure import RESULTS, ROOT
from page_tables import drawn, named, write

from ktpfl_pipeline.analysis.evidence import DIGITS
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, holm, paired, worst_decile
from ktpfl_pipeline.analysis.study import Study
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_TRANSFER
from ktpfl_pipeline.reports.numbers import Entry, corrected, interval, mean, percent

KEPT, PAGES = RESULTS / "runs", ROOT / "docs" / "results"
COLUMNS = ("setting", "method", "seed", "client", "architecture", "evaluation", "accuracy")
NEW = "new clients"
"""The setting of rows of clients that joined after training."""
LOCAL = "local"
Rows = list[dict[str, str]]


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


def read(page: str) -> Rows:
    """Return the kept rows of a page, or no rows if there are none."""
    file = KEPT / f"{page}.csv"
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def keep(page: str, *given: str) -> None:
    """Add the runs of files to the kept rows of a page."""
    names = dict(each.split("=") for each in given if "=" in each)
    new = [row for file in given if "=" not in file for each in runs_in(Path(file)) for row in rows_of(*each)]
    new = [{**row, "method": names.get(row["method"], row["method"])} for row in new]
    there = {tuple(row[name] for name in COLUMNS[:3]) for row in new}
    rows = [*(row for row in read(page) if tuple(row[name] for name in COLUMNS[:3]) not in there), *new]
    KEPT.mkdir(exist_ok=True)
    with (KEPT / f"{page}.csv").open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


class Runs:
    """The kept rows of one setting.

    Attributes:
        clients: the accuracies of the clients by method, evaluation and seed.
    """

    def __init__(self, rows: Rows, setting: str = "") -> None:
        """Group the rows of `setting`."""
        self.clients: dict[str, dict[str, dict[int, list[float]]]] = {}
        for row in rows:
            if row["setting"] == setting:
                points = self.clients.setdefault(row["method"], {})
                seeds = points.setdefault(row["evaluation"], {})
                seeds.setdefault(int(row["seed"]), []).append(float(row["accuracy"]))

    def means(self, method: str, point: str = AFTER_TRANSFER) -> dict[int, float]:
        """Return a method's mean accuracy over clients by seed."""
        return {seed: fmean(values) for seed, values in self.clients[method][point].items()}

    def accuracy(self, method: str, point: str = AFTER_TRANSFER) -> Entry:
        """Return a method's mean accuracy in percent, ± over seeds."""
        return mean(list(self.means(method, point).values()))

    def minus(self, method: str, other: str = LOCAL, point: str = AFTER_TRANSFER) -> Difference | None:
        """Return the difference of two methods, paired by seed."""
        return paired(self.means(method, point), self.means(other, point))

    def corrected(self, point: str = AFTER_TRANSFER) -> dict[str, Difference | None]:
        """Return each method's difference to local-only training, corrected for all of them."""
        return holm({method: self.minus(method, point=point) for method in self.clients if method != LOCAL})


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
    runs = {setting: Runs(rows, setting) for setting in SOURCES}
    gains = [corrected({setting: own.minus(method) for setting, own in runs.items()}) for method in compared]
    for setting, shown in SOURCES.items():
        lines.append([shown, runs[setting].accuracy(LOCAL), *(column[setting] for column in gains)])
    return drawn(lines)


def natural(rows: Rows) -> str:
    """Return the table of people's sensors or of cameras, the best method first, with corrected differences."""
    runs = Runs(rows)
    adapted = max(
        (point for point in runs.clients[LOCAL] if point.startswith(ADAPTED)),
        key=lambda point: int(point.removeprefix(ADAPTED)),
    )
    gains, gains_adapted = runs.corrected(), runs.corrected(adapted)
    head = (
        "method",
        "after transfer (%)",
        "minus local-only",
        "adapted (%)",
        "adapted, minus local-only",
        "worst decile (%)",
    )
    lines: list[list[Entry]] = [[*head]]
    for method in sorted(runs.clients, key=lambda name: -fmean(runs.means(name).values())):
        worst = fmean(worst_decile(values) for values in runs.clients[method][AFTER_TRANSFER].values())
        difference, after = ("" if method == LOCAL else interval(found[method]) for found in (gains, gains_adapted))
        shown = named(method), runs.accuracy(method), difference, runs.accuracy(method, adapted), after
        lines.append([*shown, percent(worst)])
    return drawn(lines)


def newcomers(rows: Rows) -> str:
    """Return the table of new clients: accuracies, and below them corrected differences to local-only training."""
    trained, new = Runs(rows), Runs(rows, NEW)
    points = [f"{ADAPTED}{epochs}" for epochs in (0, 1, 4, 10)]
    headings = ["on joining", "after 1 epoch", *(f"after {epochs} epochs" for epochs in (4, 10)), "trained clients"]
    gains = {point: new.corrected(point) for point in points}
    lines: list[list[Entry]] = [["method", *headings]]
    for method in ("kt_pfl", "fedmd", "fedproto", "fedavg", LOCAL):
        lines.append([named(method), *(new.accuracy(method, point) for point in points), trained.accuracy(method)])
        if method != LOCAL:
            lines.append(["", *(interval(gains[point][method]) for point in points), ""])
    return drawn(lines)


TABLES: dict[str, tuple[str, str, Callable[[Rows], str]]] = {
    "public_images": (
        "public_images.md",
        "with the same private samples",
        public_images,
    ),
    "har": ("natural_federations.md", "## People (UCI HAR)", natural),
    "camera_traps": ("natural_federations.md", "## Cameras (iWildCam 2020)", natural),
    "newcomers": (
        "../../benchmarks/results/new_clients.md",
        "below it the difference to local-only training's new clients",
        newcomers,
    ),
}
"""The page, the text above the table and the function of each table, by the name of the kept rows."""


def table() -> None:
    """Write the tables of all kept runs into their pages."""
    for name, (page, above, draw) in TABLES.items():
        if rows := read(name):
            write(PAGES / page, {above: draw(rows)})


COMMANDS: dict[str, Callable[..., None]] = {"keep": keep, "table": table}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
