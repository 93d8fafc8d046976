"""How far a method is: a bar over its rounds and clients with the accuracy and the time left, or quiet log lines."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import rich.progress
from rich.console import Console

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.methods import title as title_of

logger = logging.getLogger(__name__)
LONG = 3600.0  # seconds
QUIET = 60.0  # seconds between log lines where there is no terminal


class Progress:
    """The progress of one method over its seeds."""

    def __init__(self, method: str, experiment: Experiment) -> None:
        """Prepare the bar; it appears on entering the context, and only in a terminal."""
        self.title = title_of(method)
        self.seeds, self.rounds = len(experiment.seeds), experiment.rounds
        self.console = Console(stderr=True)
        self.bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=24),
            rich.progress.TextColumn("{task.fields[where]}"),
            rich.progress.TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task(self.title, total=self.seeds * self.rounds, where="starting")
        self.finished, self.judged = 0, False

    def __enter__(self) -> "Progress":
        """Show the bar."""
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self.bar.stop()

    @contextmanager
    def run(self, seed: int) -> Iterator["SeedProgress"]:
        """Yield the progress of one seed's run, and log its end in one line."""
        shown = SeedProgress(self, seed)
        start = time.monotonic()
        yield shown
        self.finished += 1
        spent = f"in {time.monotonic() - start:.0f} s" if shown.trained else "(finished before)"
        logger.info("%s, seed %d: %s %s", self.title, seed, shown.accuracy, spent)


class SeedProgress:
    """The progress of one run."""

    def __init__(self, parent: Progress, seed: int) -> None:
        """Start at nothing."""
        self.parent, self.seed = parent, seed
        self.round_number, self.accuracy = 0, "not evaluated yet"
        self.trained = False
        self.last_line = time.monotonic()

    def phase(self, name: str, done: int, total: int) -> None:
        """Show which client the phase is at.

        Args:
            name: of the phase.
            done: clients that are finished with it.
            total: clients that take part.
        """
        parent = self.parent
        self.trained = self.trained or self.round_number < parent.rounds  # after the last round, Theorem 1 is checked
        where = (
            f"seed {self.seed}  round {self.round_number + 1}/{parent.rounds}  {name} {done}/{total}  {self.accuracy}"
        )
        within = {"train": 0.0, "predict": 0.3, "distill": 0.4, "evaluate": 0.9}.get(name, 0.0) + 0.1 * done / total
        parent.bar.update(parent.task, completed=self._rounds_before() + within, where=where)

    def round(self, record: RoundRecord) -> None:
        """Show a finished round; after the first, say so if this will take long."""
        parent, self.round_number = self.parent, record.round
        if "after_transfer" in record.accuracy:
            self.accuracy = f"accuracy {100 * mean(record.accuracy['after_transfer']):.1f} %"
        parent.bar.update(parent.task, completed=self._rounds_before())
        if self.trained and not parent.judged:  # the first round trained here, not one from a checkpoint
            parent.judged = True
            self._warn_if_long(record.seconds["round"])
        if parent.bar.disable and time.monotonic() - self.last_line > QUIET:
            self.last_line = time.monotonic()
            logger.info(
                "%s, seed %d, round %d/%d: %s", parent.title, self.seed, record.round, parent.rounds, self.accuracy
            )

    def _rounds_before(self) -> int:
        return self.parent.finished * self.parent.rounds + self.round_number

    def _warn_if_long(self, seconds: float) -> None:
        total = seconds * (self.parent.rounds * self.parent.seeds - self._rounds_before() + 1)
        if total > LONG:
            logger.warning(
                "%s will take about %.1f hours at %.0f s a round; stop and add --env=quick for a run of minutes.",
                self.parent.title,
                total / 3600,
                seconds,
            )
