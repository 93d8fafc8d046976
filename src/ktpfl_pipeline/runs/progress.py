"""The progress of a command: one display over all methods and seeds with the remaining time, or sparse log lines."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Display
from rich.table import Column

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, VALIDATION, RoundRecord, mean
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports.numbers import duration

logger = logging.getLogger(__name__)
LONG = 3600.0  # seconds of remaining time from which the user is warned
QUIET = 60.0  # seconds between log lines without a terminal
BESIDE = 72  # characters of a line, without its bar
STARTS = {"train": 0.0, "predict": 0.3, "distill": 0.4, "evaluate": 0.9}
"""The share of a round that is over when a phase begins."""


@dataclass
class Plan:
    """Everything that one command trains. A run is one method with one seed.

    Attributes:
        trainings: the number of methods to train, each with all seeds, as far as the number is known.
        shown: whether a terminal shows the progress.
        started: the number of methods that were started.
        done: the number of finished runs.
        trained: the number of runs that this process trained; a resumed run counts as the fraction trained here.
        spent: the seconds that these runs took.
        restated: whether the log already has the line about new settings.
    """

    trainings: int
    shown: bool = True
    started: int = 0
    done: int = 0
    trained: float = 0.0
    spent: float = 0.0
    restated: bool = False

    def left(self, runs: float) -> str:
        """Return the time for the remaining `runs` in words, estimated from earlier runs; empty before any round."""
        return f"about {duration(self.spent / self.trained * runs)} left" if self.trained and runs > 0 else ""

    def say_anew(self) -> None:
        """Log once, at the first run, that runs with other settings are kept."""
        if not self.done and not self.restated:
            logger.info("New settings, data or code; earlier runs are kept.")
        self.restated = True


_plan: ContextVar[Plan | None] = ContextVar("plan", default=None)


def expect(trainings: int, shown: bool = True) -> None:
    """Announce the number of methods that will be trained, each with all seeds, and whether to show their progress."""
    _plan.set(Plan(trainings, shown))


def fewer(trainings: int) -> None:
    if plan := _plan.get():
        plan.trainings -= trainings


class Progress(Display):
    """The progress of one method over its seeds, below the progress of all runs.

    The display is shown inside the context of this object, and only in a terminal.
    """

    def __init__(self, method: str, experiment: Experiment, point: str = AFTER_TRANSFER) -> None:
        """Show the accuracy at an evaluation `point`."""
        console = Console(stderr=True)
        width = max(8, min(40, console.width - BESIDE))
        where = TextColumn("{task.fields[where]}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        name = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        plan = _plan.get()
        if plan is None or plan.started == plan.trainings:  # this method was not announced
            _plan.set(plan := Plan(1))
        hidden = not (plan.shown and console.is_terminal)
        super().__init__(name, BarColumn(width), where, console=console, transient=True, disable=hidden)
        plan.done = plan.started * len(experiment.seeds)  # also if an earlier method stopped at its first seed
        plan.started += 1
        self.point = point
        self.plan, self.title, self.rounds = plan, title_of(method), experiment.rounds
        self.runs = len(experiment.seeds) * plan.trainings
        self.overall = self.add_task("All runs", total=self.runs, completed=plan.done, where=self.standing(0.0))
        self.bar = self.add_task(self.title, total=self.rounds, where="starting")
        self.judged = False  # whether the remaining time was compared with `LONG`

    def standing(self, running: float) -> str:
        """Return the overall progress in words. `running` is the finished fraction of the current run."""
        left = self.plan.left(self.runs - self.plan.done - running)
        return f"{self.plan.done} of {self.runs}{left and ', '}{left}"

    @contextmanager
    def run(self, seed: int) -> Iterator["SeedProgress"]:
        """Yield the progress of one seed's run, and log one line when it ends or fails. A failed run counts as done."""
        self.reset(self.bar, description=f"{self.title}, seed {seed}", where="starting")
        shown = SeedProgress(self, seed)
        start = time.monotonic()
        try:
            yield shown
        except Exception:  # its message does not name the run
            logger.error(f"{self.title}, seed {seed}: failed after {shown.rounds} of {plural(self.rounds, 'round')}")
            raise
        finally:
            taken = time.monotonic() - start
            self.plan.done += 1
            self.plan.spent += max(0.0, taken - shown.seconds) if shown.trained else 0.0  # time outside of the rounds
        spent = f"in {duration(taken)}" if shown.trained else "(finished before)"
        left = self.plan.left(self.runs - self.plan.done) if self.disable else ""
        line = f"{self.plan.done}/{self.runs}  {self.title}, seed {seed}: {shown.accuracy} {spent}{left and ', '}{left}"
        logger.info(line)


class SeedProgress:
    """The progress of one run."""

    def __init__(self, parent: Progress, seed: int) -> None:
        self.parent, self.seed = parent, seed
        self.rounds, self.accuracy, self.trained = 0, "not evaluated yet", False
        self.seconds = 0.0  # that the rounds trained here took
        self.last_line = time.monotonic()

    def phase(self, name: str, done: int, total: int) -> None:
        """Show that `done` of the `total` clients that take part have finished the phase `name`."""
        parent = self.parent
        if self.rounds == parent.rounds:
            parent.update(parent.bar, where=f"looking at the final models  {self.accuracy}")
            return
        self.trained = True
        where = f"round {self.rounds + 1}/{parent.rounds}  {name} {done}/{total}  {self.accuracy}"
        self._show(self.rounds + STARTS.get(name, 0.0) + 0.1 * done / total, where)

    def tell(self, accuracy: float) -> None:
        """Show this accuracy from now on: the accuracy of a round, or at the end the final value of the reports."""
        kind = f"{VALIDATION} " * (self.parent.point == VALIDATION)
        self.accuracy = f"{kind}accuracy {100 * accuracy:.1f} %"

    def round(self, record: RoundRecord) -> None:
        """Show a finished round. After the first round, warn the user if the runs will take longer than `LONG`."""
        parent, self.rounds = self.parent, record.round
        if parent.point in record.accuracy:
            self.tell(mean(record.accuracy[parent.point]))
        if self.trained:  # this process trained the round
            seconds = record.seconds["round"]
            self.seconds += seconds
            parent.plan.trained += 1 / parent.rounds
            parent.plan.spent += seconds
            left = seconds * ((parent.runs - parent.plan.done) * parent.rounds - self.rounds + 1)
            if not parent.judged and left > LONG:
                logger.warning(
                    f"This will take about {left / 3600:.1f} hours at {seconds:.0f} s a round; stop and add "
                    "--env=quick for a run of minutes."
                )
            parent.judged = True
        self._show(self.rounds, f"round {self.rounds}/{parent.rounds}  {self.accuracy}")
        if parent.disable and time.monotonic() - self.last_line > QUIET:
            self.last_line = time.monotonic()
            logger.info(f"{parent.title}, seed {self.seed}, round {self.rounds}/{parent.rounds}: {self.accuracy}")

    def _show(self, rounds: float, where: str) -> None:
        parent, part = self.parent, rounds / self.parent.rounds
        parent.update(parent.bar, completed=rounds, where=where)
        parent.update(parent.overall, completed=parent.plan.done + part, where=parent.standing(part))
