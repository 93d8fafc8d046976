"""Tracking in an MLflow store: one MLflow run per experiment, method, partition and seed, with metrics per round."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.core.errors import InputError, masked
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.tracking.store import Store, impatient, open_client
from ktpfl_pipeline.tracking.tracker import PARENT, Dataset, Ending, Entry, KeptModel, TrackedRun, Tracker

CLIENTS = "clients.json"
"""The artifact with a table of one row per client."""
MLFLOW_NOTE = "mlflow.note.content"
"""The tag whose Markdown MLflow shows at the top of a run's page."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""The tag that makes MLflow open an experiment with its runs instead of traces of language models."""
TRAINED = "tags.seed != ''"
"""The search filter for runs of a method with one seed, as opposed to comparisons and studies."""


class MlflowTracker(Tracker):
    """A tracker that logs runs to an MLflow store."""

    def __init__(self, store: str, artifacts: Path, checkpoints: Path | None = None, models: str = "first") -> None:
        """Set the address of the store, which `run` opens or creates. A local database has its files in `artifacts`."""
        super().__init__(checkpoints, models)
        self.store, self.artifacts = store, artifacts

    @contextlib.contextmanager
    def run(self, entry: Entry, dataset: Dataset | None = None) -> Iterator["MlflowRun"]:
        """Yield the MLflow run for `entry`, a new or an earlier one; see `Tracker.run`."""
        store = Store(self.store, self.artifacts)
        with store.alone(), store.use() as client:
            tracked = MlflowRun(store, self._find_or_create(client, entry), dataset)
        try:
            yield tracked
            with store.use():
                tracked.stop("FINISHED")
        except BaseException as error:
            with contextlib.suppress(Exception), impatient():  # the store may be unreachable
                tracked.stop("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
            raise

    def add_models(self, models: Sequence[KeptModel]) -> None:
        """List models in MLflow, below the experiments of their runs, except models that are listed already."""
        from mlflow.entities import LoggedModelOutput

        store = Store(self.store, self.artifacts)
        for run_id, folder, properties, metrics, step in models:
            with store.use() as client:
                experiment = client.get_run(run_id).info.experiment_id
                own = f"source_run_id = '{run_id}' AND name = '{folder.name}' AND status = 'READY'"
                if client.search_logged_models([experiment], own):
                    continue
                made = client.create_logged_model(experiment, folder.name, run_id, params=dict(properties))
                client.log_model_artifacts(made.model_id, str(folder))
                client.log_batch(run_id, _points(metrics, step, made.model_id))
                client.log_outputs(run_id, [LoggedModelOutput(made.model_id, step)])
                client.finalize_logged_model(made.model_id, "READY")

    def experiments(self) -> dict[str, str]:
        """Return the ids of experiments by name, most recently trained first, without MLflow's default experiment."""
        client = open_client(self.store)
        found = {each.name: each.experiment_id for each in client.search_experiments() if each.name != "Default"}
        trained = {name: _last(client, number) for name, number in found.items()}
        started = {name: run.info.start_time if run else 0 for name, run in trained.items()}
        return {name: found[name] for name in sorted(found, key=lambda name: -started[name])}

    def latest_report(self, experiment_id: str) -> str:
        """Return the id of the parent run of the run that was trained last; empty if it has none."""
        last = _last(open_client(self.store), experiment_id)
        parent: str = last.data.tags.get(PARENT, "") if last else ""
        return parent

    def _find_or_create(self, client: Any, entry: Entry) -> str:
        from mlflow.entities import Param

        experiment, name, key, params, tags = entry
        found = client.get_experiment_by_name(experiment)
        if found and found.lifecycle_stage == "deleted":
            number = found.experiment_id
            raise InputError(
                f"The experiment {experiment} was deleted in MLflow; bring it back with `mlflow experiments restore -x "
                f"{number}`, or make room with `mlflow gc --experiment-ids {number}`, with the store {self.store}."
            )
        location = (self.artifacts / experiment).as_uri() if self.store.startswith("sqlite:") else None
        experiment_id = found.experiment_id if found else client.create_experiment(experiment, location, KIND)
        begun = client.search_runs([experiment_id], filter_string=f"tags.key = '{key}'", max_results=1)
        made = {"key": key, **_made_by(), **tags}
        run = begun[0] if begun else client.create_run(experiment_id, run_name=name, tags=made)
        _set_parent(client, run, tags.get(PARENT, ""))  # a sweep with more values becomes the parent of earlier runs
        if len(run.data.params) < len(params):  # new, or killed right after its creation
            client.log_batch(
                run.info.run_id, params=[Param(path, masked(str(value))) for path, value in params.items()]
            )
        return str(run.info.run_id)


def _last(client: Any, experiment_id: str) -> Any:
    """Return the last trained run of an experiment; None if there is none."""
    order = ["attributes.start_time DESC"]
    return next(iter(client.search_runs([experiment_id], TRAINED, max_results=1, order_by=order)), None)


class MlflowRun(TrackedRun):
    """An MLflow run in progress. A finished run is left unchanged, because its key shows that nothing has changed."""

    def __init__(self, store: Store, run_id: str, dataset: Dataset | None) -> None:
        """Read the state of the run from the store. Unless it is finished, mark it as running and log its dataset."""
        run = store.client.get_run(run_id)
        self.store, self.run_id = store, run_id
        self.complete = run.info.status == "FINISHED"
        self.logged = int(run.data.metrics.get("round", 0))
        if not self.complete:
            store.client.update_run(run_id, "RUNNING")
            if dataset:
                store.client.log_inputs(run_id, datasets=[_input(dataset)])

    def stop(self, status: str) -> None:
        """Set the final status of the run: ``FINISHED``, ``FAILED`` or ``KILLED``."""
        if not self.complete:
            self.store.client.set_terminated(self.run_id, status)

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""
        if record.round > self.logged:
            with self.store.use() as client:
                points = {"round": float(record.round), **round_metrics(record), **system_metrics()}
                client.log_batch(self.run_id, _points(points, record.round))
            self.logged = record.round

    def finish(self, ending: Ending) -> None:
        """Log the results at the end of a run, except results that were logged before."""
        if self.complete:
            return
        with self.store.use() as client:
            with self.store.alone():  # another process may finish the same tuning
                known = client.get_run(self.run_id).data.metrics
                missing = {name: value for name, value in ending.summary.items() if name not in known}
                client.log_batch(self.run_id, _points(missing, 0))
            for name, figure in ending.figures.items():
                client.log_figure(self.run_id, figure, f"{name}.png")
            for name, table in ending.tables.items():
                client.log_dict(self.run_id, table, f"{name}.json")
            if ending.clients and all(file.path != CLIENTS for file in client.list_artifacts(self.run_id)):
                client.log_table(self.run_id, dict(ending.clients), CLIENTS)  # a second call would append rows

    def report(self, folder: Path, note: str, metrics: Mapping[str, float], children: Sequence[str]) -> None:
        """Log a report; see `TrackedRun.report`."""
        with self.store.use() as client:
            for child in filter(None, children):
                _set_parent(client, client.get_run(child), self.run_id)
            client.set_tag(self.run_id, MLFLOW_NOTE, note)
            client.log_artifacts(self.run_id, str(folder))
            known = client.get_run(self.run_id).data.metrics
            changed = {name: value for name, value in metrics.items() if known.get(name) != value}
            client.log_batch(self.run_id, _points(changed, 0))


def _points(metrics: Mapping[str, float], step: int, model_id: str | None = None) -> list[Any]:
    """Return metrics as MLflow objects with the current time."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    return [Metric(name, value, now, step, model_id) for name, value in metrics.items()]


def _set_parent(client: Any, run: Any, parent: str) -> None:
    """Set the parent of a run unless it is set already."""
    if parent and run.data.tags.get(PARENT) != parent:
        client.set_tag(run.info.run_id, PARENT, parent)


def _made_by() -> dict[str, str]:
    here = here_and_now()
    tags = {"mlflow.source.name": here.command, "mlflow.source.type": "LOCAL"}
    known = {"mlflow.user": here.user, "mlflow.source.git.commit": here.commit}
    return tags | {name: value for name, value in known.items() if value}


def _input(dataset: Dataset) -> Any:
    from mlflow import entities

    name = masked(dataset.name)
    source, profile = (json.dumps(dict(content)) for content in ({"source": name}, dataset.profile))
    given = entities.Dataset(name, dataset.digest, "ktpfl_pipeline", source, profile=profile)
    return entities.DatasetInput(given, [entities.InputTag("mlflow.data.context", "training")])


def system_metrics() -> dict[str, float]:
    """Return the CPU and memory usage of this machine, under MLflow's names of system metrics."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),  # since the last call
        "system/system_memory_usage_megabytes": memory.used / 1e6,
        "system/system_memory_usage_percentage": memory.percent,
    }


def round_metrics(record: RoundRecord) -> dict[str, float]:
    """Return the metrics of one round. MLflow groups charts by the part of a name before the slash."""
    from ktpfl_pipeline.core.client.measures import MEASURES

    return {
        **{f"accuracy/{point}": mean(values) for point, values in record.accuracy.items()},
        **{f"loss/{phase}": mean(values) for phase, values in record.loss.items()},
        **{f"measures/{name}": mean(values) for name in MEASURES if (values := record.measures.get(name))},
        **{f"bytes/{category}": float(sum(values)) for category, values in record.traffic.items()},
        **{f"work/{name}": float(sum(values)) for name, values in record.work.items()},
        **{f"seconds/{phase}": value for phase, value in record.seconds.items()},
        **{name: float(count) for name, count in record.counts.items() if count},
        **{f"metrics/{name}": value for name, value in record.metrics.items()},
        **({"privacy/epsilon": max(record.epsilon)} if record.epsilon else {}),
    }
