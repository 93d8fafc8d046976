"""Where faults happen: a project, its snapshots to start from, and what its undisturbed run ends with."""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forked_runs
import numpy as np
import yaml
from moments import Moment, Moments
from project_copy import EXPERIMENT, Project, timeless
from toy import same

SEED, ROUNDS = 0, 3
IMAGES = 300
DISK = 64  # MiB of the small disk, where one can be mounted
SETTINGS: dict[str, Any] = {
    "seeds": [SEED],
    "rounds": ROUNDS,
    "private": {"source": "npz:digits.npz"},
    "theorem_samples": 20,
}
FRESH, BEGUN, FINISHED = "fresh", "begun", "finished"


@dataclass
class Stage:
    """One project at one place, for one fault after another.

    Attributes:
        project: the project; its folder is always the same one, as its database has absolute paths.
        snapshots: a copy of it ``fresh``, ``begun`` (killed after its second round) and ``finished``.
        expected: what the undisturbed run ended with.
        counts: the moments of the run from each snapshot.
        seconds: how long each of these takes.
        small: whether the project is on a disk of its own, which can be filled.
        arguments: of the command, beside the usual ones.
    """

    project: Project
    snapshots: Path
    small: bool
    arguments: tuple[str, ...] = ()
    expected: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Counter[Moment]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def build(cls, place: Path, database: Path | None = None, arguments: tuple[str, ...] = ()) -> "Stage":
        """Make the project, its undisturbed run, and its snapshots.

        Args:
            place: a folder that is not there yet.
            database: an empty MLflow store; None makes one, which takes seconds.
            arguments: of the command, beside the usual ones.
        """
        (place / "disk").mkdir(parents=True)
        small = mount(place / "disk")
        stage = cls(Project(place / "disk" / "project"), place / "snapshots", small, arguments)
        stage.snapshots.mkdir()
        try:
            stage._prepare(database)
        except BaseException:
            stage.close()
            raise
        return stage

    def _prepare(self, database: Path | None) -> None:
        if database is None:
            database = made = self.snapshots / "empty.db"
            forked(lambda: _make_store(made))
        _make_project(self.project.folder, database)
        self._keep(FRESH)
        self._measure(FRESH)
        self.expected = self.found()
        self._keep(FINISHED)
        self.start_from(FRESH)
        self._begin()
        self._keep(BEGUN)
        self._measure(BEGUN)
        if wrong := self.differences():
            raise AssertionError(f"a run that was killed and nothing else: {wrong}")

    def run(self, **how: Any) -> forked_runs.Ended:
        """Give the command in a child."""
        how["arguments"] = (*self.arguments, *how.get("arguments", ()))
        return forked_runs.run(self.project.folder, **how)

    @property
    def ballast(self) -> Path:
        """The file that fills the small disk."""
        return self.project.folder.with_name("ballast")

    def start_from(self, name: str) -> None:
        """Let the project be as the snapshot is."""
        folder = self.project.folder
        shutil.rmtree(folder, ignore_errors=True)
        self.ballast.unlink(missing_ok=True)
        shutil.copytree(self.snapshots / name, folder)

    def close(self) -> None:
        """Take the small disk away."""
        if self.small:
            subprocess.run(["umount", str(self.project.folder.parent)], check=False)

    def found(self) -> dict[str, Any]:
        """Return all that a finished run must repeat: models, matrix, history, results, tracked runs, reports."""
        project = self.project
        (file,) = project.checkpoints("kt_pfl", SEED)
        kept = project.checkpoint("kt_pfl", SEED)
        result = json.loads((project.folder / f"data/07_model_output/{EXPERIMENT}/kt_pfl/result.json").read_text())
        return {
            "the checkpoint's folder": file.parent.name,
            "the models": kept["state"],
            "the matrix": kept["coefficients"],
            "the settings": kept["settings"],
            "the history": timeless(kept["history"]),
            "the result": _without_times(result),
            "the partition": project.partition(),
            "the files": _files(project.folder),
            "the report": _report(project.folder),
            "the tracked runs": tracked(project.folder),
        }

    def differences(self) -> str:
        """Return what is not as the undisturbed run left it: empty if all is."""
        try:
            found = self.found()
        except Exception as error:  # something is not there, or cannot be read
            return f"{type(error).__name__}: {error}"
        wrong = [name for name, value in self.expected.items() if not same(found[name], value)]
        return ", ".join(f"{name}{_detail(found[name], self.expected[name])}" for name in wrong)

    def _begin(self) -> None:
        """Kill a run once it has the checkpoint of its second round."""

        def watch(pipe: int) -> None:
            from ktpfl_pipeline.tracking.mlflow import MlflowRun

            usual = MlflowRun.round

            def told(run: Any, record: Any) -> None:
                usual(run, record)
                if record.round == ROUNDS - 1:
                    os.kill(os.getpid(), 9)

            MlflowRun.round = told  # type: ignore[method-assign]

        self.run(watch=watch)

    def _keep(self, name: str) -> None:
        shutil.copytree(self.project.folder, self.snapshots / name)

    def _measure(self, name: str) -> None:
        """Give the command, and count its moments."""
        file = self.snapshots / f"{name}.json"

        def watch(pipe: int) -> None:
            moments = Moments(self.project.folder, None, 0, lambda _: None)
            moments.watch()
            leave = os._exit

            def count(code: int) -> None:
                file.write_text(json.dumps([[*moment, number] for moment, number in moments.counts.items()]))
                leave(code)

            os._exit = count  # type: ignore[assignment]

        ended = self.run(watch=watch)
        if ended.code != 0:
            raise AssertionError(f"the undisturbed run failed:\n{ended.output}")
        self.counts[name] = Counter({(place, what): number for place, what, number in json.loads(file.read_text())})
        self.seconds[name] = ended.seconds


def mount(folder: Path) -> bool:
    """Put a small disk at a folder, and say whether that was allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def forked(make: Any) -> None:
    """Call a function in a process of its own, so that this one opens nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            make()
            code = 0
        os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise AssertionError("the empty MLflow store could not be made")


def _make_store(file: Path) -> None:
    from ktpfl_pipeline.tracking import MlflowTracker

    MlflowTracker(f"sqlite:///{file}", file.parent).experiments()


def _make_project(folder: Path, database: Path) -> None:
    """Make a project with one experiment on images of its own."""
    project = Project.create(folder, database)
    sections = yaml.safe_load((folder / "conf/test/parameters_hetero.yml").read_text())
    project.configure("parameters_hetero", **{**sections, EXPERIMENT: {**sections[EXPERIMENT], **SETTINGS}})
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:IMAGES] * 15).astype("uint8")
    np.savez(folder / "data/01_raw/digits.npz", images=images, labels=digits.target[:IMAGES])


def tracked(folder: Path) -> dict[str, Any]:
    """Return what the MLflow store has, by run: its points without times, and its files. Read without MLflow.

    Raises:
        AssertionError: if two runs have the same key.
    """
    with contextlib.closing(sqlite3.connect(f"file:{folder / 'mlflow.db'}?mode=ro", uri=True)) as store:
        keys = store.execute("select value, run_uuid from tags where key = 'key'").fetchall()
        runs = store.execute("select run_uuid, name, status, lifecycle_stage from runs").fetchall()
        assert len({key for key, _ in keys}) == len(keys) == len(runs), f"{len(runs)} MLflow runs have {keys}"
        key_of = {run: key for key, run in keys}
        found: dict[str, Any] = {}
        for run, name, status, stage in runs:
            points = store.execute("select key, step, value from metrics where run_uuid = ?", (run,)).fetchall()
            params = store.execute("select key, value from params where run_uuid = ?", (run,)).fetchall()
            latest = store.execute("select key, step, value from latest_metrics where run_uuid = ?", (run,)).fetchall()
            is_report = name.startswith("report")
            found[name] = {
                "key": "" if is_report else key_of[run],
                "status": [status, stage],
                "points": _points(points),
                "latest": _points(latest),
                "params": sorted(params),
                "files": _artifacts(folder / "mlruns" / EXPERIMENT / run / "artifacts"),
            }
    return found


def running(folder: Path) -> int:
    """Return how many runs the store says are still going; 0 where it cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'mlflow.db'}?mode=ro", uri=True)) as store:
            return int(store.execute("select count(*) from runs where status = 'RUNNING'").fetchone()[0])
    except sqlite3.Error:
        return 0


def _points(rows: list[tuple[str, int, float]]) -> list[tuple[str, int, Any]]:
    """Return the points without what no run repeats: how long it took, and how busy the machine was (with psutil)."""
    return sorted(
        (name, step, None if name.startswith(("seconds/", "system/")) else value) for name, step, value in rows
    )


def _artifacts(folder: Path) -> dict[str, str]:
    """Return the files of a run by name, with their content where it must repeat."""
    return {str(file.relative_to(folder)): _content(file) for file in sorted(folder.rglob("*")) if file.is_file()}


def _files(folder: Path) -> dict[str, str]:
    """Return what the run left under data/, with the content where it must repeat."""
    files = [file for file in sorted((folder / "data").rglob("*")) if file.is_file() and file.suffix != ".pt"]
    return {str(file.relative_to(folder)): _content(file) for file in files}


def _content(file: Path) -> str:
    """Return what of a file must repeat; of one with times or ids in it, that it is not cut short."""
    if file.suffix == ".png" or file.name in ("partition.csv", "coefficients.json"):
        return hashlib.sha256(file.read_bytes()).hexdigest()
    if file.suffix == ".json":
        return json.dumps(_without_times(json.loads(file.read_text())), sort_keys=True)
    if file.suffix == ".svg":
        return str(file.read_text().rstrip().endswith("</svg>"))
    if file.suffix == ".html":
        return str(file.read_text().rstrip().endswith("</html>"))
    return str(file.stat().st_size > 0)


def _without_times(value: Any) -> Any:
    """Return the value without wall times and run ids, at any depth."""
    left_out = ("seconds", "run_id", "run_ids", "round_seconds")
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if name not in left_out}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def _report(folder: Path) -> dict[str, bool]:
    """Return for each report, and each file with a sum beside it, whether it is as it was written."""
    from ktpfl_pipeline.pipelines.datasets import SUMS, ReportDataset, is_whole

    found = {}
    for file in sorted((folder / "data").rglob("*.sha256")):
        found[str(file.relative_to(folder))] = is_whole(file.with_suffix(""))
    for file in sorted((folder / "data/08_reporting").rglob(SUMS)):
        report = ReportDataset(filepath=str(folder / "data/08_reporting" / EXPERIMENT))
        found[str(file.relative_to(folder))] = report.exists()
    return found


def _detail(found: Any, expected: Any) -> str:
    """Return where two dictionaries differ."""
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return ""
    names = [name for name in found.keys() | expected.keys() if not same(found.get(name), expected.get(name))]
    inner = [f"{name}{_detail(found.get(name), expected.get(name))}" for name in sorted(map(str, names))[:4]]
    return f" ({'; '.join(inner)})"
