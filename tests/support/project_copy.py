"""A copy of the project to run in: its configuration, empty data, and a way to run it in this process.

Starting `kedro run` takes about six seconds, so most tests run a session in this process. A test of the command line
forks this process. Most of a short run would be reading the configuration and drawing figures. The copy therefore has
one experiment and the sections that a test needs, and figures are empty.
"""

import contextlib
import csv
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
import yaml
from blank import blank_figures, no_figures
from kedro.config import OmegaConfigLoader
from kedro.framework.cli.cli import main
from kedro.framework.project import configure_project
from kedro.framework.session import KedroSession
from kedro.runner import SequentialRunner
from sqlalchemy import event
from sqlalchemy.engine import Engine

from ktpfl_pipeline.config import reading
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS

ROOT = Path(__file__).parents[2]
EXPERIMENT = "hetero_digits"
REPORTS = ("report", "comparison")
"""The kinds of MLflow runs that contain a report and do not train."""
READ = ("base", "test")
"""The environments of conf/ that `kedro run --env=test` reads."""
SAMPLES = {"hetero_digits": 450, "homo_digits": 1100}
"""The number of digits, of 1797, in these experiments in the environment `test`, including the public sets."""


@dataclass(frozen=True)
class Project:
    """A project in a separate folder."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, database: Path | None = None, sections: tuple[str, ...] = ()) -> "Project":
        """Copy the parts of the project that a run needs: the experiment and `sections` of conf/base and conf/test.

        `database` is an empty MLflow store to copy. Without a store, runs are not tracked.
        """
        others = [place.name for place in (ROOT / "conf").iterdir() if place.is_dir() and place.name not in READ]
        shutil.copytree(ROOT / "conf", folder / "conf", ignore=shutil.ignore_patterns(*others, "parameters*"))
        for file in (ROOT / "conf").glob("*/parameters*.yml"):
            if file.parent.name in READ and (kept := _some(file, (EXPERIMENT, *sections))):
                (folder / file.relative_to(ROOT)).write_text(kept)
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "conf" / "local").mkdir()
        (folder / "src").mkdir()  # Kedro needs the folder; the package itself is installed
        (folder / "data" / "01_raw").mkdir(parents=True)
        project = cls(folder)
        if database is None:
            project.configure("tracking", enabled=False)
        else:
            shutil.copy(database, folder / "mlflow.db")
        return project

    def configure(self, name: str, environment: str = "test", /, **settings: Any) -> None:
        """Write the file `name` of an environment."""
        (self.folder / "conf" / environment / f"{name}.yml").write_text(yaml.safe_dump(settings))

    def train(self, **settings: Any) -> None:
        """Run the pipeline without its report, which takes two thirds of a short run; see `run`."""
        self.run(namespaces=["data", "methods.kt_pfl"], **settings)

    def run(
        self,
        pipeline: str = EXPERIMENT,
        /,
        experiment: str = EXPERIMENT,
        only_missing: bool = False,
        namespaces: list[str] | None = None,
        others: dict[str, Any] | None = None,
        drawn: bool = False,
        **settings: Any,
    ) -> None:
        """Do `kedro run --env=test` in this process, with `settings` of the experiment and settings of `others`.

        Figures are empty. With `drawn` they are made from the results, but blank.
        """
        configure_project("ktpfl_pipeline")
        parameters = {**(others or {}), **({experiment: settings} if settings else {})}
        with (
            blank_figures(),
            contextlib.nullcontext() if drawn else no_figures(),
            quick_yaml(),
            contextlib.chdir(self.folder),
            KedroSession.create(project_path=self.folder, env="test", runtime_params=parameters) as session,
        ):
            session.run(
                pipeline_names=[pipeline],
                runner=SequentialRunner(),
                only_missing_outputs=only_missing,
                namespaces=namespaces,
            )

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Do `kedro run --env=test` in a separate process, and return its exit code, its output and its errors."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            child = forked.start(_be_the_command, self.folder, (output.fileno(), errors.fileno()), arguments)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for stream in (output, errors):
                stream.seek(0)
            return code, output.read(), errors.read()

    def checkpoint(self, method: str, seed: int = 0) -> dict[str, Any]:
        """Return the checkpoint of the method's only run with this seed."""
        (file,) = self.checkpoints(method, seed)
        content: dict[str, Any] = torch.load(file, weights_only=True)
        return content

    def checkpoints(self, method: str, seed: int = 0) -> list[Path]:
        """Return the checkpoint files of the method's runs with this seed."""
        return sorted((self.folder / "data" / "06_models" / EXPERIMENT / method).glob(f"seed-{seed}-*/checkpoint.pt"))

    def finished(self, method: str) -> dict[int, dict[str, Any]]:
        """Return the method's saved finished runs by seed."""
        file = self.folder / "data" / "07_model_output" / EXPERIMENT / method / "result.json"
        return {run["seed"]: run for run in json.loads(file.read_text())["runs"]}

    def partition(self) -> dict[int, list[dict[str, str]]]:
        """Return the rows of the saved partition, by seed."""
        rows = defaultdict(list)
        with (self.folder / "data" / "03_primary" / EXPERIMENT / "partition.csv").open() as file:
            for row in csv.DictReader(file):
                rows[int(row["seed"])].append(row)
        return dict(rows)

    def written(self) -> list[str]:
        """Return the files that runs have written below data/ and mlruns/."""
        files = [file for place in ("data", "mlruns") for file in (self.folder / place).rglob("*") if file.is_file()]
        return sorted(str(file.relative_to(self.folder)) for file in files)

    def client(self) -> Any:
        """Return an MLflow client for the store of this project."""
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=f"sqlite:///{self.folder / 'mlflow.db'}")

    def tracked(self, experiment: str = EXPERIMENT) -> list[Any]:
        """Return the MLflow runs of an experiment, oldest first, without runs that only contain a report."""
        return [run for run in self._runs(experiment) if run.data.tags.get("kind") not in REPORTS]

    def reports(self, experiment: str = EXPERIMENT) -> list[Any]:
        """Return the MLflow runs of an experiment that contain a report, oldest first."""
        return [run for run in self._runs(experiment) if run.data.tags.get("kind") in REPORTS]

    def _runs(self, experiment: str) -> list[Any]:
        client = self.client()
        found = client.get_experiment_by_name(experiment)
        return client.search_runs([found.experiment_id], order_by=["start_time"]) if found else []


@event.listens_for(Engine, "connect")
def wait_for_no_disk(connection: Any, _: Any) -> None:
    """Let MLflow's database write without waiting for the disk, because no test cuts the power."""
    connection.execute("PRAGMA synchronous=OFF")


@contextlib.contextmanager
def quick_yaml() -> Iterator[None]:
    """Read YAML with libyaml inside the context, in a tenth of the time. Its messages on bad YAML are different."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "SafeLoader", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        yield


@cache
def configuration() -> dict[str, Any]:
    """Return the sections of conf/test and conf/base with their inherited settings."""
    with quick_yaml():
        return reading.sections(OmegaConfigLoader(conf_source=str(ROOT / "conf"), env="test", **CONFIG_LOADER_ARGS))


def _be_the_command(folder: Path, streams: tuple[int, int], arguments: tuple[str, ...]) -> None:
    """Run the command in this process with these output streams, and exit."""
    os.chdir(folder)
    os.environ["COLUMNS"] = "200"
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115 - pytest's are caught
    sys.argv = ["kedro", "run", "--env=test", *arguments]
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@cache
def _some(file: Path, sections: tuple[str, ...]) -> str:
    """Return these sections of a parameters file and the sections that they inherit.

    Experiments of conf/test have few digits, and do not check Theorem 1, which takes longer than their training. Return
    an empty string if the file has only other sections.
    """
    there = _parameters(file)
    if not any(name in sections for name in there) and not all(name.startswith("_") for name in there):
        return ""
    kept = {name: own for name, own in there.items() if name in sections or name.startswith("_")}
    for name in SAMPLES.keys() & kept.keys() if file.parent.name == "test" else ():
        kept[name] = {**kept[name], "private": {"samples": SAMPLES[name]}, "theorem_samples": 0}
    return yaml.safe_dump(kept)


@cache
def _parameters(file: Path) -> dict[str, Any]:
    """Return the content of a parameters file."""
    with quick_yaml():
        return dict(yaml.safe_load(file.read_text()))


class PowerCut(BaseException):
    """The end of a process at a certain moment. Later writes do not happen."""


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the history without wall times, which differ between equal runs."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]
