"""The interface of trackers, and a tracker that does nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ktpfl_pipeline.core.metrics import RoundRecord

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow shows a run below another."""


class Dataset(NamedTuple):
    """The data that a run uses: where they are from and how they are dealt out, a digest of at most 36 characters."""

    name: str
    digest: str
    profile: Mapping[str, int]


class Ending(NamedTuple):
    """The results at the end of a run by name: final numbers, figures of matplotlib, and plain values, kept as JSON.

    `clients` are the columns of a table with one row a client, and `model` is the folder of a model of MLflow.
    """

    summary: Mapping[str, float]
    figures: Mapping[str, Any] = {}
    tables: Mapping[str, Any] = {}
    clients: Mapping[str, Sequence[Any]] = {}
    model: Path | None = None


class TrackedRun:
    """A run in progress; this one keeps nothing."""

    run_id = ""  # MLflow's
    complete = True  # whether nothing is logged to it any more: it was finished before, or there is no store

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""

    def finish(self, ending: Ending) -> None:
        """Log the results at the end of the run."""

    def report(self, folder: Path, note: str, metrics: Mapping[str, float], children: Sequence[str]) -> None:
        """Log the files of a report, a note in Markdown, which the run's page says first, and metrics, once.

        The runs that the report compares, `children` by their ids, are below this run from now on.
        """


class Entry(NamedTuple):
    """The description of a run before it starts, with its experiment and its name in MLflow's lists.

    The key identifies the run: equal settings have equal keys. With the tag `PARENT` it becomes a child of that run.
    """

    experiment: str
    name: str
    key: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class Tracker:
    """Tracks runs; this one, without a store, does nothing. Without a folder of `checkpoints`, none are kept."""

    def __init__(self, checkpoints: Path | None = None) -> None:
        self.checkpoints = checkpoints

    @contextmanager
    def run(self, entry: Entry, dataset: Dataset | None = None) -> Iterator[TrackedRun]:
        """Yield the run of an entry, an earlier one or a new one, with the `dataset` that it uses."""
        yield TrackedRun()
