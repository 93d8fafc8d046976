"""Cells of the KT-pFL paper's tables and figures: one method in one setting, as far as its seeds are finished."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ktpfl_pipeline.analysis.results import HEADLINE, FinishedRun, MethodResult, summarise
from ktpfl_pipeline.analysis.statistics import Final
from ktpfl_pipeline.methods import title


@dataclass(frozen=True)
class Cell:
    """One method in one column of a table or figure.

    Attributes:
        part: the table or figure.
        experiment: section of conf/.
        label: what its setting is called there.
        method: registry name.
        settings: what all methods of the column share.
        hyperparameters: of the method.
        seeds: that it takes.
        keys: of its runs, by seed; none where it cannot be run.
        runs: those that are finished.
        seconds: a run takes, as far as it is known.
        judged: how that is known.
        failed: why the cell cannot be finished; empty where nothing is known against it.
        samples: private samples of a client, mean over clients and seeds; None where the data cannot be made.
    """

    part: str
    experiment: str
    label: str
    method: str
    settings: dict[str, Any]
    hyperparameters: dict[str, Any]
    seeds: Sequence[int]
    keys: dict[int, str]
    runs: Sequence[FinishedRun]
    seconds: float | None = None
    judged: str = ""
    failed: str = ""
    samples: float | None = None

    @property
    def title(self) -> str:
        """The method's name in tables."""
        return title(self.method)

    @property
    def left(self) -> list[str]:
        """The keys of the runs that are not finished."""
        done = {run.key for run in self.runs}
        return [key for key in self.keys.values() if key not in done]

    @cached_property
    def result(self) -> MethodResult | None:
        """What came out, once all seeds are finished."""
        finished = len(self.runs) == len(self.seeds)
        return summarise(self.runs, self.hyperparameters, self.settings) if finished else None

    @property
    def final(self) -> Final | None:
        """Its final accuracy over clients and seeds, in 0..1; None before all seeds are finished."""
        return self.result.final[HEADLINE] if self.result else None


def seconds_left(cells: Sequence[Cell]) -> float | None:
    """Return the seconds that the runs of these cells still take, each run once; None where one is not known."""
    seconds = {key: cell.seconds for cell in cells for key in cell.left}
    known = [each for each in seconds.values() if each is not None]
    return sum(known) if len(known) == len(seconds) else None
