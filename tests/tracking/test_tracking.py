"""One MLflow run per key, whatever happens to the process that makes it."""

import contextlib
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock, patch

import matplotlib.figure
import pytest
from finished_runs import make_run
from mlflow import MlflowClient
from mlflow.store.db import utils as db_utils
from mlflow.store.tracking import sqlalchemy_store

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.runs.run import log_end
from ktpfl_pipeline.tracking import PARENT, Dataset, Ending, Entry, MlflowTracker, Tracker, store
from ktpfl_pipeline.tracking.store import open_client

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow

SETTINGS: dict[str, Any] = {
    "enabled": True,
    "store": "sqlite:///mlflow.db",
    "artifacts": "mlruns",
    "checkpoints": "data/06_models",
}
RUN = Entry(
    *("digits", "kt_pfl · seed 0", "abc"),
    {"rounds": 3, "training.learning_rate": 0.1, "method.update": "eg"},
    {"method": "kt_pfl", "seed": "0"},
)


@pytest.fixture
def tracker(tmp_path: Path, empty_store: Path) -> MlflowTracker:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path / "mlruns")


@pytest.fixture
def client(tracker: MlflowTracker) -> Any:
    return open_client(tracker.store)


def record(t: int) -> RoundRecord:
    return RoundRecord(
        round=t,
        cohort=[0, 1],
        accuracy={"after_local": [0.25, 0.75], "after_transfer": [0.5, 1.0]},
        loss={"train": [t, 3.0 * t], "test": [1.0, 2.0]},
        traffic={"knowledge_up": [10, 20]},
        seconds={"train": 1.5, "round": 2.0},
    )


def runs(client: Any, experiment: str = "digits") -> list[Any]:
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def finished(tracker: Tracker, entry: Entry = RUN, dataset: Dataset | None = None) -> str:
    """Make a run that logs nothing, and return its id."""
    with tracker.run(entry, dataset) as tracked:
        return tracked.run_id


def text_of(client: Any, run: Any, path: str) -> str:
    return Path(client.download_artifacts(run.info.run_id, path)).read_text()


def points(client: Any, run_id: str, metric: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run_id, metric)]


class TestOneRunPerKey:
    def test_a_new_run_has_its_name_tags_and_parameters(self, tracker: MlflowTracker, client: Any) -> None:
        with tracker.run(RUN) as tracked:
            assert client.get_run(tracked.run_id).info.status == "RUNNING"
        run = client.get_run(tracked.run_id)
        assert (run.info.status, run.info.run_name) == ("FINISHED", "kt_pfl · seed 0")
        assert run.data.params == {"rounds": "3", "training.learning_rate": "0.1", "method.update": "eg"}
        assert {"key": "abc", "method": "kt_pfl", "seed": "0"}.items() <= run.data.tags.items()
        assert tracker.experiments() == {"digits": run.info.experiment_id}

    def test_the_same_key_is_the_same_run(self, tracker: MlflowTracker, client: Any) -> None:
        with tracker.run(RUN) as first:
            first.round(record(1))
        with tracker.run(RUN) as second:
            second.round(record(1))
            second.finish(Ending({"final/after_transfer": 0.1}))
        assert second.run_id == first.run_id
        assert len(runs(client)) == 1
        run = client.get_run(first.run_id)
        assert run.info.status == "FINISHED"
        assert "final/after_transfer" not in run.data.metrics, "a finished run is left as it is"

    def test_another_key_or_experiment_is_another_run(self, tracker: MlflowTracker) -> None:
        others = (RUN, RUN._replace(key="abd"), RUN._replace(experiment="cifar"))
        assert len({finished(tracker, entry) for entry in others}) == 3

    def test_no_two_processes_make_tables_experiments_and_runs_at_once(
        self, tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        within: list[Path] = []
        made: list[str] = []

        @contextlib.contextmanager
        def alone(folder: Path) -> Iterator[None]:
            within.append(folder)
            yield
            within.pop()

        def watched(name: str) -> None:
            original = getattr(MlflowClient, name)

            def called(*given: Any, **named: Any) -> Any:
                assert within == [Path(tracker.store.removeprefix("sqlite:///")).parent]
                made.append(name)
                return original(*given, **named)

            monkeypatch.setattr(MlflowClient, name, called)

        monkeypatch.setattr(store, "alone", alone)
        for name in ("__init__", "create_experiment", "create_run"):
            watched(name)
        with tracker.run(RUN):
            assert not within
        assert made == ["__init__", "create_experiment", "create_run"]

    def test_a_run_is_below_the_sweep_that_asked_for_it_last(self, tracker: MlflowTracker, client: Any) -> None:
        """A sweep with one more value takes over the finished runs."""

        def parent_after(tags: dict[str, str]) -> str | None:
            finished(tracker, RUN._replace(tags={**RUN.tags, **tags}))
            (run,) = runs(client)
            assert run.info.status == "FINISHED"
            return run.data.tags.get(PARENT)

        assert parent_after({}) is None
        assert parent_after({PARENT: "first"}) == "first"
        assert parent_after({PARENT: "second"}) == "second"
        assert parent_after({}) == "second"

    def test_killed_between_the_run_and_its_parameters(self, tracker: MlflowTracker, client: Any) -> None:
        """The run is there and its parameters are not: who finds it again logs them."""
        number = client.create_experiment("digits")
        begun = client.create_run(number, run_name="kt_pfl · seed 0", tags={"key": "abc"})
        assert finished(tracker) == begun.info.run_id
        params = client.get_run(begun.info.run_id).data.params
        assert params == {name: str(value) for name, value in RUN.params.items()}

    def test_an_experiment_deleted_in_the_ui(self, tracker: MlflowTracker, client: Any) -> None:
        finished(tracker)
        client.delete_experiment(client.get_experiment_by_name("digits").experiment_id)
        with pytest.raises(InputError, match="digits was deleted in MLflow; bring it back with"):
            finished(tracker)


class TestRounds:
    def test_one_point_per_metric_and_round(self, tracker: MlflowTracker, client: Any) -> None:
        with tracker.run(RUN) as tracked:
            for t in (1, 2, 3):
                tracked.round(record(t))
        assert points(client, tracked.run_id, "round") == [(1, 1.0), (2, 2.0), (3, 3.0)]
        assert points(client, tracked.run_id, "loss/train") == [(1, 2.0), (2, 4.0), (3, 6.0)]  # mean of t and 3t

    def test_means_over_clients_and_sums_of_bytes(self) -> None:
        assert tracking.round_metrics(record(2)) == {
            "accuracy/after_local": 0.5,
            "accuracy/after_transfer": 0.75,
            "loss/train": 4.0,
            "loss/test": 1.5,
            "bytes/knowledge_up": 30.0,
            "seconds/train": 1.5,
            "seconds/round": 2.0,
        }

    def test_measures_of_every_evaluation_and_the_work_of_all(self) -> None:
        """What is measured after the last round alone is no curve."""
        measures = {"macro_f1": [0.5, 1.0], "global_accuracy": [0.1, 0.3]}
        told = tracking.round_metrics(RoundRecord(1, [0, 1], measures=measures, work={"samples": [30.0, 10.0]}))
        assert told == {"measures/macro_f1": 0.75, "work/samples": 40.0}

    def test_points_are_there_while_the_run_goes(self, tracker: MlflowTracker, client: Any) -> None:
        with tracker.run(RUN) as tracked:
            tracked.round(record(1))
            assert points(client, tracked.run_id, "accuracy/after_transfer") == [(1, 0.75)]

    def test_a_resumed_run_is_told_of_all_rounds_and_logs_the_new_ones(
        self, tracker: MlflowTracker, client: Any
    ) -> None:
        with pytest.raises(RuntimeError), tracker.run(RUN) as tracked:
            tracked.round(record(1))
            tracked.round(record(2))
            raise RuntimeError("the power went out")
        with tracker.run(RUN) as resumed:
            for t in (1, 2, 3):
                resumed.round(record(t))
        assert resumed.run_id == tracked.run_id
        assert [step for step, _ in points(client, resumed.run_id, "round")] == [1, 2, 3]
        assert [step for step, _ in points(client, resumed.run_id, "bytes/knowledge_up")] == [1, 2, 3]


class TestProvenance:
    def test_a_new_run_says_who_made_it_from_what(self, tracker: MlflowTracker, client: Any) -> None:
        here = here_and_now()
        dataset = Dataset("digits · two_labels", "0123456789abcdef", {"samples": 1797, "clients": 5})
        run_id, again = (finished(tracker, dataset=dataset) for _ in range(2))
        assert again == run_id
        run = client.get_run(run_id)
        assert run.data.tags["mlflow.source.name"] == here.command
        assert run.data.tags.get("mlflow.source.git.commit", "") == here.commit
        assert run.data.tags.get("mlflow.user", "") == here.user
        (given,) = run.inputs.dataset_inputs
        assert (given.dataset.name, given.dataset.digest) == dataset[:2]
        assert json.loads(given.dataset.profile) == {"samples": 1797, "clients": 5}

    def test_how_busy_the_machine_is(
        self, tracker: MlflowTracker, client: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = SimpleNamespace(used=3e9, percent=25.0)
        psutil = SimpleNamespace(virtual_memory=lambda: memory, cpu_percent=lambda: 75.0)
        monkeypatch.setitem(sys.modules, "psutil", psutil)
        with tracker.run(RUN) as tracked:
            tracked.round(record(1))
        assert points(client, tracked.run_id, "system/cpu_utilization_percentage") == [(1, 75.0)]
        assert points(client, tracked.run_id, "system/system_memory_usage_megabytes") == [(1, 3000.0)]


class TestEnd:
    def test_numbers_figures_and_tables(self, tracker: MlflowTracker, client: Any, tmp_path: Path) -> None:
        figure = matplotlib.figure.Figure()
        with tracker.run(RUN) as tracked:
            tracked.finish(Ending({"final/after_transfer": 0.75}, {"accuracy": figure}, {"coefficients": [[1.0, 0.0]]}))
        assert client.get_run(tracked.run_id).data.metrics["final/after_transfer"] == 0.75
        assert {file.path for file in client.list_artifacts(tracked.run_id)} == {"accuracy.png", "coefficients.json"}
        assert list((tmp_path / "mlruns" / "digits").rglob("accuracy.png")), "in the folder of artifacts"

    def test_one_row_a_client_however_often_it_ends(self, tracker: MlflowTracker, client: Any) -> None:
        for _ in range(2):
            with pytest.raises(SystemExit), tracker.run(RUN) as tracked:
                tracked.finish(Ending({}, {}, {}, {"client": [0, 1], "final/after_transfer": [0.5, 1.0]}))
                raise SystemExit
        table = json.loads(Path(client.download_artifacts(tracked.run_id, "clients.json")).read_text())
        assert table == {"columns": ["client", "final/after_transfer"], "data": [[0, 0.5], [1, 1.0]]}

    def test_a_run_that_ends_early(self, tracker: MlflowTracker, client: Any) -> None:
        statuses = {RuntimeError: "FAILED", KeyboardInterrupt: "KILLED", SystemExit: "FAILED"}
        for error, status in statuses.items():
            run = RUN._replace(key=error.__name__)
            with pytest.raises(error), tracker.run(run) as tracked:
                raise error
            assert client.get_run(tracked.run_id).info.status == status, error
            with tracker.run(run) as again:
                assert again.run_id == tracked.run_id, error
                assert client.get_run(again.run_id).info.status == "RUNNING", error
            assert client.get_run(tracked.run_id).info.status == "FINISHED", error

    def test_a_finished_run_stays_finished(self, tracker: MlflowTracker, client: Any) -> None:
        """What fails after the training, on the way through it again, has nothing to do with the run."""
        run_id = finished(tracker)
        with pytest.raises(RuntimeError), tracker.run(RUN):
            raise RuntimeError
        assert client.get_run(run_id).info.status == "FINISHED"


class TestFaults:
    """A run stops in a sentence where it cannot be tracked; started again, it logs what is missing, once."""

    AWAY: ClassVar[dict[str, Callable[[Path], Any]]] = {
        "deleted": Path.unlink,
        "moved away": lambda store: store.rename(store.with_name("elsewhere.db")),
        "replaced by a folder": lambda store: (store.unlink(), store.mkdir()),
        "replaced by another": lambda store: (
            store.rename(store.with_name("x.db")),
            shutil.copy(store.with_name("x.db"), store),
        ),
        "overwritten": lambda store: store.write_bytes(b"hello" * 5000),
    }

    @pytest.mark.parametrize("how", AWAY)
    def test_the_store_goes_away(self, tracker: MlflowTracker, tmp_path: Path, how: str) -> None:
        store = tmp_path / "mlflow.db"
        with pytest.raises(InputError) as refused, tracker.run(RUN) as tracked:
            tracked.round(record(1))
            shutil.copy(store, tmp_path / "backup.db")
            self.AWAY[how](store)
            tracked.round(record(2))
        message = str(refused.value)
        assert message.startswith(
            f"MLflow's store sqlite:///{store} (files: {tmp_path / 'mlruns'}) could not be used ("
        )
        assert "give the same command again" in message
        if store.is_dir():
            store.rmdir()
        (tmp_path / "backup.db").replace(store)
        again = MlflowTracker(f"sqlite:///{tmp_path}/./mlflow.db", tmp_path / "mlruns")  # as another process would
        with again.run(RUN) as resumed:
            for t in (1, 2, 3):
                resumed.round(record(t))
        client = open_client(again.store)
        assert resumed.run_id == tracked.run_id
        assert [run.info.status for run in runs(client)] == ["FINISHED"]
        assert [step for step, _ in points(client, resumed.run_id, "round")] == [1, 2, 3]

    def test_files_that_cannot_be_kept(self, tracker: MlflowTracker, client: Any, tmp_path: Path) -> None:
        (tmp_path / "mlruns").write_text("a file")
        with pytest.raises(InputError, match="could not be used") as refused, tracker.run(RUN) as tracked:
            tracked.finish(Ending({"final/accuracy": 0.5}, {}, {"coefficients": [[1.0]]}))
        assert str(tmp_path / "mlruns") in str(refused.value)
        assert client.get_run(tracked.run_id).info.status == "FAILED"

    def test_final_numbers_are_logged_once(self, tracker: MlflowTracker, client: Any) -> None:
        """Also if the process ended between them and the end of the run."""
        for _ in range(2):
            with pytest.raises(SystemExit), tracker.run(RUN) as tracked:
                tracked.finish(Ending({"final/accuracy": 0.5, "final/loss": 2.0}))
                raise SystemExit
        with tracker.run(RUN) as tracked:
            tracked.finish(Ending({"final/accuracy": 0.5, "final/loss": 2.0}))
        assert points(client, tracked.run_id, "final/accuracy") == [(0, 0.5)]
        assert points(client, tracked.run_id, "final/loss") == [(0, 2.0)]

    def test_final_numbers_are_logged_once_by_two_at_once(self, tracker: MlflowTracker, client: Any) -> None:
        """Two equal tunings, of which each began before the other ended."""
        with tracker.run(RUN) as one, tracker.run(RUN) as other:
            for tracked in (one, other):
                tracked.finish(Ending({"final/accuracy": 0.5}))
        assert points(client, one.run_id, "final/accuracy") == [(0, 0.5)]

    def test_a_bug_is_not_the_stores_fault(self, tracker: MlflowTracker) -> None:
        with pytest.raises(ZeroDivisionError), tracker.run(RUN):
            raise ZeroDivisionError

    @pytest.mark.parametrize("make", [Path.mkdir, lambda store: store.write_bytes(b"hello" * 5000)])
    def test_what_is_no_store_is_refused_at_once(self, tmp_path: Path, make: Callable[[Path], Any]) -> None:
        """MLflow alone tries ten times, for two minutes."""
        make(tmp_path / "mlflow.db")
        with (
            patch.object(db_utils, "create_sqlalchemy_engine_with_retry", side_effect=AssertionError),
            pytest.raises(InputError, match="cannot open the store"),
        ):
            MlflowTracker(f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path).experiments()


def log_report(tracker: Tracker, experiment: str, name: str, key: str, folder: Path, **given: Any) -> None:
    """Log a report as `parent.log_report` does."""
    kind = "comparison" if given.get("children") else "report"
    with tracker.run(Entry(experiment, name, key, {}, {"kind": kind})) as tracked:
        tracked.report(folder, **{"note": "", "metrics": {}, "children": [], **given})


def written(place: Path, text: str) -> Path:
    """Return a folder with a report of this text."""
    folder = place / "report"
    folder.mkdir(exist_ok=True)
    (folder / "report.md").write_text(text)
    return folder


class TestReports:
    REPORT: ClassVar[dict[str, Any]] = {"experiment": "digits", "name": "report · compare", "key": "r1"}

    def test_a_run_of_their_own(self, tracker: MlflowTracker, client: Any, tmp_path: Path) -> None:
        folder = written(tmp_path, "# Results")
        (folder / "figures").mkdir()
        (folder / "figures" / "accuracy.svg").write_text("<svg></svg>")
        log_report(tracker, **self.REPORT, folder=folder)
        (run,) = runs(client)
        assert (run.info.status, run.info.run_name) == ("FINISHED", "report · compare")
        assert {"key": "r1", "kind": "report"}.items() <= run.data.tags.items()
        assert text_of(client, run, "report.md") == "# Results"
        assert "</svg>" in text_of(client, run, "figures/accuracy.svg")

    def test_the_same_key_replaces_the_report(self, tracker: MlflowTracker, client: Any, tmp_path: Path) -> None:
        for text in ("first", "second"):
            log_report(tracker, **self.REPORT, folder=written(tmp_path, text))
        (run,) = runs(client)
        assert text_of(client, run, "report.md") == "second"

    def test_to_a_run_that_is_there(self, tracker: MlflowTracker, client: Any, tmp_path: Path) -> None:
        run_id = finished(tracker)
        log_report(tracker, "digits", "another name", RUN.key, written(tmp_path, "of the run"))
        (run,) = runs(client)
        assert run.info.run_id == run_id
        assert text_of(client, run, "report.md") == "of the run"

    def test_a_comparison_is_above_its_runs(self, tracker: MlflowTracker, client: Any, tmp_path: Path) -> None:
        children = [finished(tracker, RUN._replace(key=key)) for key in ("a", "b")]
        for note in ("**first**", "**second**"):
            folder, metrics = written(tmp_path, note), {"gain/kt_pfl": 0.125}
            log_report(tracker, **self.REPORT, folder=folder, note=note, metrics=metrics, children=[*children, ""])
        (parent,) = [run for run in runs(client) if run.data.tags.get("kind") == "comparison"]
        assert {client.get_run(child).data.tags[PARENT] for child in children} == {parent.info.run_id}
        assert parent.data.tags["mlflow.note.content"] == "**second**"
        assert points(client, parent.info.run_id, "gain/kt_pfl") == [(0, 0.125)]
        log_report(tracker, **self.REPORT, folder=folder, metrics={"gain/kt_pfl": -0.5})
        assert client.get_run(parent.info.run_id).data.metrics["gain/kt_pfl"] == -0.5

    def test_untracked(self, tmp_path: Path) -> None:
        log_report(Tracker(), **self.REPORT, folder=tmp_path)
        assert not any(tmp_path.iterdir())


class TestExperiments:
    """What `make ui` shows: the experiment and the report that were made last."""

    def test_mlflow_opens_an_experiment_on_its_runs(self, tracker: MlflowTracker, client: Any) -> None:
        """Without this tag MLflow takes an experiment for one on language models, and opens it on traces."""
        finished(tracker, RUN._replace(experiment="new"))
        assert client.get_experiment_by_name("new").tags["mlflow.experimentKind"] == "custom_model_development"

    def test_the_experiment_that_was_trained_last_comes_first(self, tracker: MlflowTracker, client: Any) -> None:
        for name in ("older", "newer", "never trained"):
            client.create_experiment(name)
        for name, started in (("older", 1000), ("newer", 3000), ("older", 2000)):
            number = client.get_experiment_by_name(name).experiment_id
            client.create_run(number, start_time=started, tags={"seed": "0"})
        assert list(tracker.experiments()) == ["newer", "older", "never trained"]

    def test_passwords_in_settings_are_masked(self, tracker: MlflowTracker, client: Any) -> None:
        params = {"private.source": "npz:http://anna:s3cret@host/x"}
        found = client.get_run(finished(tracker, RUN._replace(params=params)))
        assert found.data.params["private.source"] == "npz:http://anna:***@host/x"

    def test_the_latest_report_is_that_of_the_last_run(
        self, tracker: MlflowTracker, client: Any, tmp_path: Path
    ) -> None:
        run_id = finished(tracker)
        (number,) = tracker.experiments().values()
        assert tracker.latest_report(number) == ""
        log_report(tracker, "digits", "report", "r1", written(tmp_path, ""), children=[run_id])
        assert tracker.latest_report(number) == client.get_run(run_id).data.tags[PARENT]

    def test_malicious_clients_are_marked(self) -> None:
        tracked = Mock()
        for adversaries in ([], [1]):
            log_end(tracked, replace(make_run(), adversaries=adversaries), {})
        honest, some = (call.args[0].clients for call in tracked.finish.call_args_list)
        assert "malicious" not in honest
        assert some["malicious"] == [0, 1]

    def test_the_runs_of_studies_have_tables_and_no_figures(self) -> None:
        tracked, run = Mock(), replace(make_run(), confusion=[[3, 1], [0, 4]])
        log_end(tracked, run, {}, drawn=False)
        ending = tracked.finish.call_args.args[0]
        assert not ending.figures
        assert "confusion" in ending.tables


class TestStores:
    def test_a_locked_database_is_not_to_be_deleted(
        self, tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "BUSY", 0.1)
        shutil.copy(empty_store, file := tmp_path / "mlflow.db")
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(
                InputError, match=r"\(database is locked\); end the process that writes to it"
            ) as caught:
                open_client(f"sqlite:///{file}")
        assert "delete" not in str(caught.value)

    @pytest.mark.parametrize(
        ("store", "reason", "remedy"),
        [
            ("carrier-pigeon://loft", "carrier-pigeon", "check that its server runs and answers"),
            (
                "sqlite:///{folder}/not_a_database.db",
                "not a database",
                "put it back, or delete what is left of it, and a new one is made from the checkpoints",
            ),
        ],
    )
    @pytest.mark.parametrize("by_variable", [False, True])
    def test_that_cannot_be_opened(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        store: str,
        reason: str,
        remedy: str,
        by_variable: bool,
    ) -> None:
        (tmp_path / "not_a_database.db").write_text("hello" * 1000)
        tracker = MlflowTracker(store.format(folder=tmp_path), tmp_path)
        if by_variable:
            monkeypatch.setenv(tracking.URI, tracker.store)
        place = "the variable MLFLOW_TRACKING_URI" if by_variable else "`store` in conf/base/tracking.yml"
        with pytest.raises(InputError) as refused:
            finished(tracker)
        message = str(refused.value)
        assert message.startswith(f"MLflow cannot open the store {tracker.store} (")
        assert reason in message
        assert message.endswith(
            f"; {remedy}, or correct {place}, or run without MLflow, `enabled: false` in conf/base/tracking.yml."
        )
        assert "\n" not in message

    def test_a_database_of_which_half_was_made_is_made_anew(
        self, tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its process was killed meanwhile: nothing of it stands where the database belongs."""
        uri = f"sqlite:///{tmp_path / 'mlflow.db'}"

        def killed(place: str, artifacts: str) -> None:
            Path(place.removeprefix("sqlite:///")).write_text("half")
            raise KeyboardInterrupt

        def whole(place: str, artifacts: str) -> Any:
            monkeypatch.undo()  # MLflow's own is needed to open it
            assert not Path(place.removeprefix("sqlite:///")).exists()
            shutil.copy(empty_store, place.removeprefix("sqlite:///"))
            return Mock()

        monkeypatch.setattr(sqlalchemy_store, "SqlAlchemyStore", killed)
        with pytest.raises(KeyboardInterrupt):
            open_client(uri)
        assert not (tmp_path / "mlflow.db").exists()
        monkeypatch.setattr(sqlalchemy_store, "SqlAlchemyStore", whole)
        assert [found.name for found in open_client(uri).search_experiments()] == ["Default"]
        assert [file.name for file in tmp_path.iterdir()] == ["mlflow.db"]

    def test_a_server_that_does_not_answer_is_not_asked_for_minutes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(store.RETRIES, raising=False)
        with store.impatient():
            assert os.environ[store.RETRIES] == "1"
        assert store.RETRIES not in os.environ
        monkeypatch.setenv(store.RETRIES, "3")
        with store.impatient():
            assert os.environ[store.RETRIES] == "3"
        assert os.environ[store.RETRIES] == "3"


@pytest.mark.usefixtures("no_tracker")
class TestConfigure:
    def test_nothing_is_tracked_until_then(self) -> None:
        assert type(tracking.current()) is Tracker
        assert tracking.current().checkpoints is None

    def test_relative_places_are_in_the_project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        tracking.configure(SETTINGS, tmp_path)
        tracker = tracking.current()
        assert isinstance(tracker, MlflowTracker)
        assert tracker.store == f"sqlite:///{tmp_path}/mlflow.db"
        assert tracker.artifacts == tmp_path / "mlruns"
        assert tracker.checkpoints == tmp_path / "data/06_models"

    @pytest.mark.parametrize("store", ["sqlite:////var/lib/mlflow.db", "http://tracking.example:5000"])
    def test_other_stores_are_taken_as_they_are(self, tmp_path: Path, store: str) -> None:
        tracking.configure({**SETTINGS, "store": store, "artifacts": "/var/lib/mlruns"}, tmp_path)
        tracker = tracking.current()
        assert isinstance(tracker, MlflowTracker)
        assert (tracker.store, tracker.artifacts) == (store, Path("/var/lib/mlruns"))

    def test_disabled(self, tmp_path: Path) -> None:
        tracking.configure({**SETTINGS, "enabled": False}, tmp_path)
        tracker = tracking.current()
        assert type(tracker) is Tracker
        assert tracker.checkpoints == tmp_path / "data/06_models", "checkpoints are kept without MLflow too"
        with tracker.run(RUN) as tracked:
            tracked.round(record(1))
            tracked.finish(Ending({}))
            assert tracked.run_id == ""
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"uri": "x"}, "tracking.uri does not exist; tracking has enabled, store, artifacts, checkpoints, models."),
            ({"enabled": "yes"}, "tracking.enabled is 'yes'; it must be true or false."),
            ({"store": ""}, "tracking.store is ''; it must be a string or null."),
            ({"artifacts": 3}, "tracking.artifacts is 3; it must be a string with at least 1 character."),
            ({"checkpoints": None}, "tracking.checkpoints is null; it must be a string with at least 1 character."),
        ],
    )
    def test_bad_settings(self, tmp_path: Path, change: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as refused:
            tracking.configure({**SETTINGS, **change}, tmp_path)
        assert str(refused.value) == message
        assert type(tracking.current()) is Tracker

    @pytest.mark.parametrize(
        ("given", "store"),
        [("http://tracking.example:5000", "http://tracking.example:5000"), ("", "sqlite:///{}/mlflow.db")],
    )
    def test_without_a_store_the_environment_names_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, store: str
    ) -> None:
        monkeypatch.setenv(tracking.URI, given)
        tracking.configure(SETTINGS | {"store": None}, tmp_path)
        assert tracking.current().store == store.format(tmp_path)  # type: ignore[attr-defined]

    def test_a_variable_that_is_not_used_is_named_without_its_password(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv(tracking.URI, "http://anna:s3cret@tracking.example:5000")
        tracking.configure(SETTINGS, tmp_path)
        assert "MLFLOW_TRACKING_URI is http://anna:***@tracking.example:5000 and is not used" in caplog.text
