"""What runs leave behind while they go: checkpoints, and the one door to MLflow.

One MLflow run per (experiment, method, partition, seed), with a point per round.

The engine knows nothing of this; it reports to an observer. Without a tracking store everything still runs.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import RoundRecord, mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow shows a run below another."""
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

    @contextmanager
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

    @contextmanager
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
        run_id = self._find_or_create(client, experiment, name, key, params, tags)
        tracked = _MlflowRun(client, run_id)
        tracked.start()
        try:
            yield tracked
        except KeyboardInterrupt:
            tracked.stop("KILLED")
            raise
        except BaseException:
            tracked.stop("FAILED")
            raise
        tracked.stop("FINISHED")

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
        with self.run(experiment, name, key, params={}, tags={"kind": "report"}) as tracked:
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

        try:
            client = MlflowClient(tracking_uri=self.store)
            client.search_experiments(max_results=1)
        except Exception as error:  # a store can fail in as many ways as there are stores
            reason = str(error).strip().partition("\n")[0]
            raise InputError(
                f"MLflow cannot open the store {self.store} ({reason}); correct `store` in conf/base/tracking.yml, or "
                "run without MLflow, `enabled: false`."
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


class _MlflowRun:
    def __init__(self, client: Any, run_id: str) -> None:
        run = client.get_run(run_id)
        self.client, self.run_id = client, run_id
        self.complete = run.info.status == "FINISHED"  # such a run is left as it is: its key says that nothing changed
        self.logged = int(run.data.metrics.get("round", 0))

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
        self.client.log_batch(self.run_id, [Metric(name, value, now, record.round) for name, value in metrics.items()])
        self.logged = record.round

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        if self.complete:
            return
        for name, value in summary.items():
            self.client.log_metric(self.run_id, name, value)
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
