"""What runs leave behind while they go: checkpoints, and the one door to MLflow.

One MLflow run per (experiment, method, partition, seed), with a point per round.

The engine knows nothing of this; it reports to an observer. Without a tracking store everything still runs.
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ktpfl_pipeline.core.errors import InputError, system_error
from ktpfl_pipeline.core.metrics import RoundRecord, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow shows a run below another."""
BUSY = 20.0
"""Seconds to wait for a database that another process has locked, as MLflow does."""
DPI = 200
"""Of the figures of a report, as in its folder."""


class TrackedRun(Protocol):
    """A run while it goes."""

    run_id: str

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        """Log what stands at the end: final numbers, figures, and tables as JSON."""


class Untracked:
    """Tracks nothing: what there is without a store."""

    run_id = ""

    def __init__(self, checkpoints: Path | None = None) -> None:
        """Remember the folder of the checkpoints; None keeps none."""
        self.checkpoints = checkpoints

    @contextlib.contextmanager
    def run(
        self, experiment: str, name: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator[TrackedRun]:
        """Yield a run that forgets."""
        yield self

    def log_report(
        self, experiment: str, name: str, key: str, files: Mapping[str, str], figures: "Mapping[str, Figure]"
    ) -> None:
        """Forget the report."""

    def round(self, record: RoundRecord) -> None:
        """Forget the round."""

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        """Forget the end."""


class MlflowTracker:
    """Tracks runs in an MLflow store."""

    def __init__(self, store: str, artifacts: Path, checkpoints: Path | None = None) -> None:
        """Remember the store; it is opened, and made where it is missing, at the first run.

        Args:
            store: an MLflow tracking URI.
            artifacts: the folder for files where the store is a local database.
            checkpoints: the folder of the checkpoints; None keeps none.
        """
        self.store, self.artifacts, self.checkpoints = store, artifacts, checkpoints

    @contextlib.contextmanager
    def run(
        self, experiment: str, name: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator[TrackedRun]:
        """Yield the run with this key: the one that was begun before, or a new one.

        Args:
            experiment: MLflow's experiment.
            name: what the run is called in lists.
            key: identifies the run; equal settings have equal keys.
            params: what is logged as parameters.
            tags: what is logged as tags; with `PARENT` the run is, from now on, below that run.
        """
        client = self._client()
        door = _Door(self.store, self.artifacts)
        with door.open():
            run_id = self._find_or_create(client, experiment, name, key, params, tags)
            tracked = _MlflowRun(client, run_id, door)
            tracked.start()
        try:
            yield tracked
            with door.open():
                tracked.stop("FINISHED")
        except BaseException as error:
            status = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
            with contextlib.suppress(Exception):  # what ended the run is told, and may be that the store is gone
                tracked.stop(status)
            raise

    def log_report(
        self, experiment: str, name: str, key: str, files: Mapping[str, str], figures: "Mapping[str, Figure]"
    ) -> None:
        """Log a report to the run with this key, begun before or new; what it held under these names is replaced.

        Args:
            experiment: MLflow's experiment.
            name: what the run is called in lists.
            key: identifies the run; equal settings have equal keys.
            files: texts by path, such as ``report.md``.
            figures: by name; each is kept as PNG and SVG.
        """
        client = self._client()
        door = _Door(self.store, self.artifacts)
        with self.run(experiment, name, key, params={}, tags={"kind": "report"}) as tracked, door.open():
            for path, text in files.items():
                client.log_text(tracked.run_id, text, path)
            for figure_name, figure in figures.items():
                for kind in ("png", "svg"):
                    path = f"figures/{figure_name}.{kind}"
                    client.log_figure(tracked.run_id, figure, path, save_kwargs={"dpi": DPI})

    def experiments(self) -> dict[str, str]:
        """Return the ids of the store's experiments by name, without MLflow's own empty default."""
        return {e.name: e.experiment_id for e in self._client().search_experiments() if e.name != "Default"}

    def _client(self) -> Any:
        import os

        # Both are read when mlflow is first imported: send nothing, and keep its log to what went wrong.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        from mlflow import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # logs the traceback of what it raises
        try:
            _try_sqlite(self.store)
            client = MlflowClient(tracking_uri=self.store)
            client.search_experiments(max_results=1)
        except Exception as error:  # a store can fail in as many ways as there are stores
            reason = str(error).strip().partition("\n")[0]
            raise InputError(
                f"MLflow cannot open the store {self.store} ({reason}); put it back, or correct `store` in "
                "conf/base/tracking.yml, or run without MLflow, `enabled: false`."
            ) from error
        return client

    def _find_or_create(
        self, client: Any, experiment: str, name: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> str:
        from mlflow.entities import Param

        found = client.get_experiment_by_name(experiment)
        if found and found.lifecycle_stage == "deleted":
            number = found.experiment_id
            raise InputError(
                f"The experiment {experiment} was deleted in MLflow; bring it back with `mlflow experiments restore -x "
                f"{number}`, or make room with `mlflow gc --experiment-ids {number}`, with the store {self.store}."
            )
        location = (self.artifacts / experiment).as_uri() if self.store.startswith("sqlite:") else None
        experiment_id = found.experiment_id if found else client.create_experiment(experiment, location)
        begun = client.search_runs([experiment_id], filter_string=f"tags.key = '{key}'", max_results=1)
        run = begun[0] if begun else client.create_run(experiment_id, run_name=name, tags={"key": key, **tags})
        if run.data.tags.get(PARENT) != (parent := tags.get(PARENT, "")) and parent:
            client.set_tag(run.info.run_id, PARENT, parent)  # a sweep with more values takes over what it finds
        if len(run.data.params) < len(params):  # new, or killed right after it was made
            client.log_batch(run.info.run_id, params=[Param(path, str(value)) for path, value in params.items()])
        return str(run.info.run_id)


class _Door:
    """What goes to the store goes through it: what fails there is one sentence, and what vanishes is noticed.

    A run stops where it cannot be tracked. All that it trained is in its checkpoint by then, and the points that are
    missing are logged when it is started again.
    """

    def __init__(self, store: str, artifacts: Path) -> None:
        """Remember which file the store is, where it is one.

        Args:
            store: the URI, of a store that was opened.
            artifacts: the folder for files where the store is a local database.
        """
        self.store, self.artifacts = store, artifacts
        self.file = _sqlite_file(store)
        self.opened = _identity(self.file)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Let something be logged.

        Raises:
            InputError: if the store or the artifacts cannot be reached, or the store is another one than before.
        """
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise self._refusal(_reason(error)) from error
        if _identity(self.file) != self.opened:  # SQLite goes on writing to a file that was deleted
            raise self._refusal("it was deleted, moved or replaced while the run went on")

    def _refusal(self, reason: str) -> InputError:
        place = f" (files: {self.artifacts})" if self.file else ""
        return InputError(
            f"MLflow's store {self.store}{place} could not be used ({reason}): put it back where it was moved, free "
            "some space where the disk is full, or run without MLflow, `enabled: false` in conf/base/tracking.yml, and "
            "give the same command again. The run goes on after its checkpoint, and logs what is missing."
        )


def _sqlite_file(store: str) -> Path | None:
    """Return the file of a store that is one."""
    prefix = "sqlite:///"
    return Path(store.removeprefix(prefix)) if store.startswith(prefix) else None


def _identity(file: Path | None) -> tuple[int, int] | None:
    """Return what tells a file from one that took its place; None where there is none."""
    try:
        found = file.stat() if file else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found else None


def _try_sqlite(store: str) -> None:
    """Raise at once what MLflow would try for two minutes: a file that is no database, a folder in its place."""
    file = _sqlite_file(store)
    if file is None or not file.exists():
        return
    with contextlib.closing(sqlite3.connect(file, timeout=BUSY)) as opened:
        opened.execute("PRAGMA schema_version").fetchone()


def _reason(error: BaseException) -> str:
    """Return what is behind the error of a library: the system's words where there are some, else its first line."""
    if (found := system_error(error)) is not None:
        return f"{found.strerror}{f': {found.filename}' if found.filename else ''}"
    innermost = error
    while (cause := innermost.__cause__ or innermost.__context__) is not None:
        innermost = cause
    return str(innermost).strip().partition("\n")[0]


class _MlflowRun:
    def __init__(self, client: Any, run_id: str, door: _Door) -> None:
        run = client.get_run(run_id)
        self.client, self.run_id, self.door = client, run_id, door
        self.complete = run.info.status == "FINISHED"  # such a run is left as it is: its key says that nothing changed
        self.logged = int(run.data.metrics.get("round", 0))
        self.known = set(run.data.metrics)

    def start(self) -> None:
        if not self.complete:
            self.client.update_run(self.run_id, "RUNNING")

    def stop(self, status: str) -> None:
        if not self.complete:
            self.client.set_terminated(self.run_id, status)

    def round(self, record: RoundRecord) -> None:
        from mlflow.entities import Metric

        if record.round <= self.logged:
            return
        now = int(time.time() * 1000)
        metrics = {"round": float(record.round), **round_metrics(record)}
        points = [Metric(name, value, now, record.round) for name, value in metrics.items()]
        with self.door.open():
            self.client.log_batch(self.run_id, points)  # all of them or none
        self.logged = record.round

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        if self.complete:
            return
        now = int(time.time() * 1000)
        missing = [Metric(name, value, now, 0) for name, value in summary.items() if name not in self.known]
        with self.door.open():
            self.client.log_batch(self.run_id, missing)
            for name, figure in figures.items():
                self.client.log_figure(self.run_id, figure, f"{name}.png")
            for name, table in tables.items():
                self.client.log_dict(self.run_id, table, f"{name}.json")


def round_metrics(record: RoundRecord) -> dict[str, float]:
    """Return one round as chart points: slashes make chart groups in MLflow."""
    return {
        **{f"accuracy/{point}": mean(values) for point, values in record.accuracy.items()},
        **{f"loss/{phase}": mean(values) for phase, values in record.loss.items()},
        **{f"bytes/{ledger}": float(sum(values)) for ledger, values in record.traffic.items()},
        **{f"seconds/{phase}": value for phase, value in record.seconds.items()},
        **({"diverged": float(len(record.diverged))} if record.diverged else {}),
        **({"privacy/epsilon": max(record.epsilon)} if record.epsilon else {}),
    }


Tracker = Untracked | MlflowTracker
_tracker: ContextVar[Tracker | None] = ContextVar("tracker", default=None)


def current() -> Tracker:
    """Return the tracker of this process: none, until `configure` was called."""
    return _tracker.get() or Untracked()


def configure(settings: Mapping[str, Any], project: Path) -> None:
    """Take the tracker from conf/base/tracking.yml.

    Args:
        settings: ``enabled``, ``store`` (an MLflow URI; a relative SQLite path is taken from the project),
            ``artifacts`` and ``checkpoints`` (folders, likewise).
        project: the project's folder.

    Raises:
        InputError: if a setting is unknown, missing or of another type.
    """
    expected = {"enabled", "store", "artifacts", "checkpoints"}
    if wrong := expected.symmetric_difference(settings):
        raise InputError(
            f"conf/base/tracking.yml must have exactly {', '.join(sorted(expected))}; mend {', '.join(sorted(wrong))}."
        )
    for name, value in settings.items():
        if not (isinstance(value, bool) if name == "enabled" else isinstance(value, str) and value):
            kind = "true or false" if name == "enabled" else "a text"
            raise InputError(f"{name} is {value!r} in conf/base/tracking.yml; it must be {kind}.")
    checkpoints = project / settings["checkpoints"]
    if not settings["enabled"]:
        _tracker.set(Untracked(checkpoints))
        return
    store = settings["store"]
    prefix = "sqlite:///"
    if store.startswith(prefix) and not store.startswith(prefix + "/"):
        store = f"{prefix}{project / store.removeprefix(prefix)}"
    _tracker.set(MlflowTracker(store, project / settings["artifacts"], checkpoints))
