"""Tracking in an MLflow store: one run for each (experiment, method, partition, seed), with a point per round."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.tracking.store import Store, open_client
from ktpfl_pipeline.tracking.tracker import PARENT, TrackedRun, Tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
"""Of the figures of a report, as in its folder."""


class MlflowTracker(Tracker):
    """Tracks runs in an MLflow store."""

    def __init__(self, store: str, artifacts: Path, checkpoints: Path | None = None) -> None:
        """Remember the store; it is opened, and made where it is missing, at the first run.

        Args:
            store: an MLflow tracking URI.
            artifacts: the folder for files where the store is a local database.
            checkpoints: the folder of the checkpoints; None keeps none.
        """
        super().__init__(checkpoints)
        self.store, self.artifacts = store, artifacts

    @contextlib.contextmanager
    def run(
        self, experiment: str, name: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator["MlflowRun"]:
        """Yield the run with this key; see `Tracker.run`."""
        store = Store(self.store, self.artifacts)
        with store.use() as client:
            tracked = MlflowRun(store, self._find_or_create(client, experiment, name, key, params, tags))
            tracked.start()
        try:
            yield tracked
            with store.use():
                tracked.stop("FINISHED")
        except BaseException as error:
            with contextlib.suppress(Exception):  # what ended the run is told, and may be that the store is gone
                tracked.stop("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
            raise

    def log_report(
        self, experiment: str, name: str, key: str, files: Mapping[str, str], figures: "Mapping[str, Figure]"
    ) -> None:
        """Log a report to the run with this key; see `Tracker.log_report`."""
        with self.run(experiment, name, key, {}, {"kind": "report"}) as tracked, tracked.store.use() as client:
            for path, text in files.items():
                client.log_text(tracked.run_id, text, path)
            for figure_name, figure in figures.items():
                for kind in ("png", "svg"):
                    path = f"figures/{figure_name}.{kind}"
                    client.log_figure(tracked.run_id, figure, path, save_kwargs={"dpi": DPI})

    def experiments(self) -> dict[str, str]:
        """Return the ids of the store's experiments by name, without MLflow's own empty default."""
        found = open_client(self.store).search_experiments()
        return {experiment.name: experiment.experiment_id for experiment in found if experiment.name != "Default"}

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


class MlflowRun(TrackedRun):
    """A run of MLflow while it goes. One that is finished is left as it is: its key says that nothing changed."""

    def __init__(self, store: Store, run_id: str) -> None:
        """Look up in the store how far the run is."""
        run = store.client.get_run(run_id)
        self.store, self.run_id = store, run_id
        self.complete = run.info.status == "FINISHED"
        self.logged = int(run.data.metrics.get("round", 0))
        self.known = set(run.data.metrics)

    def start(self) -> None:
        """Say that the run goes."""
        if not self.complete:
            self.store.client.update_run(self.run_id, "RUNNING")

    def stop(self, status: str) -> None:
        """Say that the run ended: ``FINISHED``, ``FAILED`` or ``KILLED``."""
        if not self.complete:
            self.store.client.set_terminated(self.run_id, status)

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""
        if record.round > self.logged:
            with self.store.use() as client:
                points = {"round": float(record.round), **round_metrics(record)}
                client.log_batch(self.run_id, _points(points, record.round))
            self.logged = record.round

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        """Log what stands at the end; see `TrackedRun.finish`."""
        if self.complete:
            return
        missing = {name: value for name, value in summary.items() if name not in self.known}
        with self.store.use() as client:
            client.log_batch(self.run_id, _points(missing, 0))
            for name, figure in figures.items():
                client.log_figure(self.run_id, figure, f"{name}.png")
            for name, table in tables.items():
                client.log_dict(self.run_id, table, f"{name}.json")


def _points(metrics: Mapping[str, float], step: int) -> list[Any]:
    """Return metrics as points of now, which MLflow logs all or none."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    return [Metric(name, value, now, step) for name, value in metrics.items()]


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
