"""Tracking in an MLflow store: one run for each (experiment, method, partition, seed), with a point per round."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.tracking.store import Store, open_client
from ktpfl_pipeline.tracking.tracker import PARENT, TrackedRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
"""Of the figures of a report, as in its folder."""


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
        store = Store(self.store, self.artifacts)
        with store.use():
            run_id = self._find_or_create(client, experiment, name, key, params, tags)
            tracked = MlflowRun(client, run_id, store)
            tracked.start()
        try:
            yield tracked
            with store.use():
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
        store = Store(self.store, self.artifacts)
        with self.run(experiment, name, key, params={}, tags={"kind": "report"}) as tracked, store.use():
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
        # Both are read when mlflow is first imported: send nothing, and keep its log to what went wrong.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # logs the traceback of what it raises
        return open_client(self.store)

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


class MlflowRun:
    """A run of MLflow while it goes. One that is finished is left as it is: its key says that nothing changed."""

    def __init__(self, client: Any, run_id: str, store: Store) -> None:
        """Look up how far the run is.

        Args:
            client: MLflow's.
            run_id: of the run.
            store: what it is logged to.
        """
        run = client.get_run(run_id)
        self.client, self.run_id, self.store = client, run_id, store
        self.complete = run.info.status == "FINISHED"
        self.logged = int(run.data.metrics.get("round", 0))
        self.known = set(run.data.metrics)

    def start(self) -> None:
        """Say that the run goes."""
        if not self.complete:
            self.client.update_run(self.run_id, "RUNNING")

    def stop(self, status: str) -> None:
        """Say that the run ended: ``FINISHED``, ``FAILED`` or ``KILLED``."""
        if not self.complete:
            self.client.set_terminated(self.run_id, status)

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""
        from mlflow.entities import Metric

        if record.round <= self.logged:
            return
        now = int(time.time() * 1000)
        metrics = {"round": float(record.round), **round_metrics(record)}
        points = [Metric(name, value, now, record.round) for name, value in metrics.items()]
        with self.store.use():
            self.client.log_batch(self.run_id, points)  # all of them or none
        self.logged = record.round

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        """Log what stands at the end; see `TrackedRun.finish`."""
        from mlflow.entities import Metric

        if self.complete:
            return
        now = int(time.time() * 1000)
        missing = [Metric(name, value, now, 0) for name, value in summary.items() if name not in self.known]
        with self.store.use():
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
        **{f"bytes/{category}": float(sum(values)) for category, values in record.traffic.items()},
        **{f"seconds/{phase}": value for phase, value in record.seconds.items()},
        **({"diverged": float(len(record.diverged))} if record.diverged else {}),
        **({"privacy/epsilon": max(record.epsilon)} if record.epsilon else {}),
    }
