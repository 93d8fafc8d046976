"""The interface of trackers, and a tracker that does nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ktpfl_pipeline.core.metrics import RoundRecord

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow shows a run below another."""


class Dataset(NamedTuple):
    """The data that a run uses.

    Attributes:
        name: where the samples come from and how they are dealt out.
        digest: of all of it, at most 36 characters.
        profile: numbers about it.
    """

    name: str
    digest: str
    profile: Mapping[str, int]


class Ending(NamedTuple):
    """The results at the end of a run.

    Attributes:
        summary: final numbers by name.
        figures: of matplotlib, by name.
        tables: plain values by name, kept as JSON.
        clients: columns of a table with one row a client.
        model: the folder of a model of MLflow, kept under its name.
    """

    summary: Mapping[str, float]
    figures: Mapping[str, Any] = {}
    tables: Mapping[str, Any] = {}
    clients: Mapping[str, Sequence[Any]] = {}
    model: Path | None = None


class TrackedRun:
    """A run in progress; this one keeps nothing.

    Attributes:
        run_id: MLflow's; empty without a store.
        complete: whether nothing is logged to it any more: it was finished before, or there is no store.
    """

    run_id = ""
    complete = True

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""

    def finish(self, ending: Ending) -> None:
        """Log the results at the end of the run."""

    def report(self, folder: Path, note: str, metrics: Mapping[str, float], children: Sequence[str]) -> None:
        """Log a report.

        Args:
            folder: with its files.
            note: what the run's page says first, in Markdown.
            metrics: what came out, logged once.
            children: ids of the runs that the report compares: from now on they are below this run.
        """


class Entry(NamedTuple):
    """The description of a run before it starts.

    Attributes:
        experiment: MLflow's experiment.
        name: the run's name in lists.
        key: identifies the run; equal settings have equal keys.
        params: the values that are logged as parameters.
        tags: the tags; with `PARENT` the run becomes a child of that run.
    """

    experiment: str
    name: str
    key: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class Tracker:
    """Tracks runs; this one, without a store, does nothing.

    Attributes:
        checkpoints: the folder of the checkpoints; None keeps none.
    """

    def __init__(self, checkpoints: Path | None = None) -> None:
        self.checkpoints = checkpoints

    @contextmanager
    def run(self, entry: Entry, dataset: Dataset | None = None) -> Iterator[TrackedRun]:
        """Yield the run of an entry, an earlier one or a new one, with the `dataset` that it uses."""
        yield TrackedRun()
