"""The interface of trackers, and a tracker that does nothing."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ktpfl_pipeline.core.metrics import RoundRecord

PARENT = "mlflow.parentRunId"
"""MLflow's tag with the id of a run's parent."""


class Dataset(NamedTuple):
    """The data that a run uses.

    Attributes:
        name: the source and the partition.
        digest: a hash of the data, at most 36 characters.
        profile: numbers that describe the data, such as the number of samples.
    """

    name: str
    digest: str
    profile: Mapping[str, int]


class Ending(NamedTuple):
    """The results at the end of a run.

    Attributes:
        summary: final numbers by name.
        figures: Matplotlib figures by name.
        tables: plain values by name, which are stored as JSON.
        clients: the columns of a table with one row per client.
    """

    summary: Mapping[str, float]
    figures: Mapping[str, Any] = {}
    tables: Mapping[str, Any] = {}
    clients: Mapping[str, Sequence[Any]] = {}


class TrackedRun:
    """A run in progress. This base class logs nothing."""

    run_id = ""  # the id in MLflow
    complete = True  # whether nothing more is logged: the run was finished before, or there is no store

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""

    def finish(self, ending: Ending) -> None:
        """Log the results at the end of the run."""

    def report(self, folder: Path, note: str, metrics: Mapping[str, float], children: Sequence[str]) -> None:
        """Log a report. Unchanged metrics are not logged again.

        Args:
            folder: the folder with the report's files.
            note: Markdown for the top of the run's page.
            metrics: metrics by name.
            children: the ids of the runs that the report compares; this run becomes their parent.
        """


class Entry(NamedTuple):
    """The description of a run before it starts.

    Attributes:
        experiment: the name of the experiment in MLflow.
        name: the name of the run in MLflow.
        key: the identifier of the run; equal settings have equal keys.
        params: the settings of the run.
        tags: tags of the run; the tag `PARENT` makes it a child of another run.
    """

    experiment: str
    name: str
    key: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]


class KeptModel(NamedTuple):
    """The model that a client keeps.

    Attributes:
        run_id: the id in MLflow of the run that trained it.
        folder: a model of MLflow; its name is the name of the model.
        properties: such as the client and the method, by name.
        metrics: by name; MLflow also shows them on the page of the run.
        step: tells the models of a run apart in these metrics.
    """

    run_id: str
    folder: Path
    properties: Mapping[str, str]
    metrics: Mapping[str, float]
    step: int


class Tracker:
    """A tracker without a store, which logs nothing.

    Attributes:
        checkpoints: the folder of the checkpoints; None: none are stored.
        models: the seeds whose models are kept next to their checkpoints: ``first``, ``all`` or ``none``.
    """

    def __init__(self, checkpoints: Path | None = None, models: str = "first") -> None:
        self.checkpoints, self.models = checkpoints, models

    @contextmanager
    def run(self, entry: Entry, dataset: Dataset | None = None) -> Iterator[TrackedRun]:
        """Yield the run for `entry`, which uses `dataset`. A run with the same key is continued."""
        yield TrackedRun()
