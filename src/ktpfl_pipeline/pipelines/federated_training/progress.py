"""How far a method is: a bar over its rounds and clients with the accuracy and the time left, or quiet log lines."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.methods import title as title_of

logger = logging.getLogger(__name__)
LONG = 3600.0  # seconds
QUIET = 60.0  # seconds between log lines where there is no terminal
STARTS = {"train": 0.0, "predict": 0.3, "distill": 0.4, "evaluate": 0.9}
"""The share of a round that is over when a phase begins."""


class Progress(Bar):
    """The progress of one method over its seeds; the bar appears on entering the context, and only in a terminal."""

    def __init__(self, method: str, experiment: Experiment) -> None:
        """Prepare the bar."""
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[where]}"))
        quiet = not console.is_terminal
        super().__init__(*columns, TimeRemainingColumn(), console=console, transient=True, disable=quiet)
        self.title, self.rounds = title_of(method), experiment.rounds
        self.total = self.rounds * len(experiment.seeds)
        self.bar = self.add_task(self.title, total=self.total, where="starting")
        self.before, self.judged = 0, False  # rounds of the seeds before; whether it was said how long it takes

    @contextmanager
    def run(self, seed: int) -> Iterator["SeedProgress"]:
        """Yield the progress of one seed's run, and log its end in one line."""
        shown = SeedProgress(self, seed)
        start = time.monotonic()
        yield shown
        self.before += self.rounds
        spent = f"in {time.monotonic() - start:.0f} s" if shown.trained else "(finished before)"
        logger.info("%s, seed %d: %s %s", self.title, seed, shown.accuracy, spent)


class SeedProgress:
    """The progress of one run."""

    def __init__(self, parent: Progress, seed: int) -> None:
        """Start at nothing."""
        self.parent, self.seed = parent, seed
        self.rounds, self.accuracy, self.trained = 0, "not evaluated yet", False
        self.last_line = time.monotonic()

    def phase(self, name: str, done: int, total: int) -> None:
        """Show that `done` of the `total` clients that take part have finished the phase `name`."""
        parent = self.parent
        self.trained = self.trained or self.rounds < parent.rounds  # after the last round, Theorem 1 is checked
        where = f"seed {self.seed}  round {self.rounds + 1}/{parent.rounds}  {name} {done}/{total}  {self.accuracy}"
        within = STARTS.get(name, 0.0) + 0.1 * done / total
        parent.update(parent.bar, completed=parent.before + self.rounds + within, where=where)

    def round(self, record: RoundRecord) -> None:
        """Show a finished round; after the first, say so if this will take long."""
        parent, self.rounds = self.parent, record.round
        if "after_transfer" in record.accuracy:
            self.accuracy = f"accuracy {100 * mean(record.accuracy['after_transfer']):.1f} %"
        completed = parent.before + self.rounds
        parent.update(parent.bar, completed=completed)
        if self.trained and not parent.judged:  # the first round trained here, not one from a checkpoint
            parent.judged = True
            seconds = record.seconds["round"]
            if (left := seconds * (parent.total - completed + 1)) > LONG:
                logger.warning(
                    f"{parent.title} will take about {left / 3600:.1f} hours at {seconds:.0f} s a round; stop and add "
                    "--env=quick for a run of minutes."
                )
        if parent.disable and time.monotonic() - self.last_line > QUIET:
            self.last_line = time.monotonic()
            logger.info(f"{parent.title}, seed {self.seed}, round {self.rounds}/{parent.rounds}: {self.accuracy}")
