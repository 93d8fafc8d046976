"""What studies share: missing runs that processes share out, lines of CSV files, accuracies by seed, tables in pages.

A finished run is one line, or one per client, of a CSV file in results/. The tables of a page are drawn from this file.
"""

import csv
import fcntl
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from measure import CONFIGURED, ROOT

from ktpfl_pipeline.analysis.statistics import Difference, holm, paired
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, RoundRecord
from ktpfl_pipeline.methods import create, find, title
from ktpfl_pipeline.reports.numbers import Entry, mean
from ktpfl_pipeline.reports.render.markdown import entry

LOCAL = "local"
Rows = list[dict[str, str]]
"""Lines of a CSV file by the names of their columns."""
Tables = Mapping[str, str]
"""The tables of a page, each by a text that stands above it and only there."""


@dataclass(frozen=True)
class Study:
    """Runs whose results are lines of a file. A key is what identifies a run; it has a short text."""

    kept: Path
    columns: Sequence[str]
    done: Callable[[Rows], set[Any]]  #: returns the keys of the finished runs among lines
    finish: Callable[[Any, Rows], Rows | None]  #: returns the new lines of a run; None if another run must come first

    def missing(self, wanted: Iterable[Any]) -> list[Any]:
        there = self.done(read(self.kept))
        return [key for key in wanted if key not in there]

    def run(self, wanted: Sequence[Any]) -> None:
        """Finish the missing runs. Several processes may do so at once, and may be stopped at any time."""
        torch.set_num_threads(1)
        while left := self.missing(wanted):
            if not sum(map(self.perform, left)):
                time.sleep(20)  # other processes are at these runs

    def perform(self, key: Any) -> bool:
        """Do a run, unless it is finished, another process is at it, or another run must come first."""
        began = time.process_time()
        with claimed(self.folder / f"{key}.lock") as free:
            if not free or key in self.done(rows := read(self.kept)) or (lines := self.finish(key, rows)) is None:
                return False
            append(self.kept, self.columns, lines)
        print(key, lines[0].get(AFTER_TRANSFER, ""), f"{time.process_time() - began:.0f} CPU s", flush=True)
        return True

    @property
    def folder(self) -> Path:
        """The folder of files that the study needs while it runs."""
        return ROOT / "build" / self.kept.stem


@contextmanager
def claimed(lock: Path) -> Iterator[bool]:
    """Yield whether no other process has this lock. It ends with the process that has it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def made_once(file: Path, arrays: Callable[[], Mapping[str, Any]]) -> Path:
    """Write arrays as an npz file, unless it is there; other processes wait meanwhile. Return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            np.savez(partial := file.with_name(f"new-{file.name}"), **arrays())
            partial.replace(file)
    return file


def read(file: Path) -> Rows:
    """Return the lines of a file, or none if it is missing."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def append(file: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add lines to a file; the lock keeps the lines of several processes apart."""
    with file.open("a", newline="", encoding="utf-8") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        writer = csv.DictWriter(opened, columns, restval="", lineterminator="\n")
        if not opened.tell():
            writer.writeheader()
        writer.writerows(rows)


def overwrite(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a whole file, with the columns of the first line."""
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    append(file, list(rows[0]), rows)


def configured(name: str) -> Method[Any]:
    """Return a method with the hyperparameters of conf/base."""
    return create(name, CONFIGURED.get(name))


def trained(method: Method[Any], fed: Federation, rounds: int, last: int, epochs: Sequence[int]) -> engine.Run:
    """Run a method, evaluated in the `last` rounds, before and after adaptation by each number of `epochs`."""
    schedule = engine.Schedule(rounds, evaluate_every=rounds, evaluate_last=last, adapt_epochs=tuple(epochs))
    with closing(fed.executor):
        return engine.run(method, replace(fed, rounds=rounds), schedule)


def in_percent(records: Sequence[RoundRecord], point: str) -> str:
    """Return the mean accuracy over clients and rounds at a point of evaluation, in percent with three decimals."""
    return f"{100 * fmean(fmean(record.accuracy[point]) for record in records):.3f}"


class Runs:
    """Accuracies in one setting, as fractions of 1.

    Attributes:
        clients: the accuracies of the clients by method, point of evaluation, and seed.
    """

    def __init__(self, values: Iterable[tuple[str, str, int, float]]) -> None:
        self.clients: dict[str, dict[str, dict[int, list[float]]]] = {}
        for method, point, seed, value in values:
            self.clients.setdefault(method, {}).setdefault(point, {}).setdefault(seed, []).append(value)

    def means(self, method: str, point: str = AFTER_TRANSFER) -> dict[int, float]:
        """Return a method's mean accuracy over clients by seed; nothing without runs."""
        return {seed: fmean(values) for seed, values in self.clients.get(method, {}).get(point, {}).items()}

    def accuracy(self, method: str, point: str = AFTER_TRANSFER) -> Entry:
        """Return a method's mean accuracy in percent, ± over seeds."""
        return mean(list(self.means(method, point).values()))

    def minus(
        self, other: str, point: str = AFTER_TRANSFER, methods: Iterable[str] | None = None
    ) -> dict[str, Difference | None]:
        """Return the differences of `methods`, or of all, to another one, paired by seed and corrected together."""
        theirs = self.means(other, point)
        chosen = self.clients if methods is None else methods
        return holm({name: paired(self.means(name, point), theirs) for name in chosen if name != other})


def named(method: str) -> str:
    """Return a method's title in tables, with a mark if its models after transfer come from local training."""
    return title(method) + " ‡" * find(method).kind.trained_last


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *rest])


def drawn(lines: Sequence[Sequence[Entry]]) -> str:
    """Return a Markdown table of texts and numbers; the first line is its head."""
    return markdown([[entry(each) for each in line] for line in lines]).replace("|  |", "| |").replace("|  |", "| |")


def replaced(text: str, tables: Tables) -> str:
    """Return the text of a page with its tables replaced.

    Raises:
        SystemExit: if one of the texts is not exactly once on the page, or has no table before the next heading.
    """
    for above, table in tables.items():
        if (count := text.count(above)) != 1:
            raise SystemExit(f"The page has the text {above!r} {count} times; it needs it once.")
        below = text.partition(above)[2]
        section = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
        place = re.search(r"^\|.*\n(?:\|.*\n)+", section, re.MULTILINE)
        if not place:
            raise SystemExit(f"The page has no table below {above!r}.")
        start = len(text) - len(below)
        text = f"{text[: start + place.start()]}{table}\n{text[start + place.end() :]}"
    return text


def write(page: Path, tables: Tables) -> None:
    page.write_text(replaced(page.read_text("utf-8"), tables), "utf-8")
