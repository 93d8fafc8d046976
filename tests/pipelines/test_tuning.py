"""Tunings, run as a user does: one MLflow run per trial below one parent, nothing trained twice, and values for all."""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from project_copy import Project

from ktpfl_pipeline import pipeline_registry
from ktpfl_pipeline.tracking import PARENT
from ktpfl_pipeline.tracking.mlflow import MlflowRun

EXPERIMENT, NAME = "homo_digits", "tune_homo_digits"
METHODS = ("kt_pfl_params", "ditto", "local")
FILE = f"data/05_model_input/{EXPERIMENT}/hyperparameters.json"


@pytest.fixture(scope="module", autouse=True)
def three_methods() -> Iterator[None]:
    """Two with a space and one without are enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_registry, "compared", lambda one_architecture: METHODS)
        yield


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    return (EXPERIMENT, NAME, "sweep_rho")


@pytest.fixture(scope="module")
def tuned(tracked: Callable[[], Project]) -> Project:
    project = tracked()
    project.run(NAME, drawn=True)
    return project


@pytest.fixture
def copied(tuned: Project, tmp_path: Path) -> Project:
    shutil.copytree(tuned.folder, tmp_path / "project")
    return Project(tmp_path / "project")


def checkpoints(project: Project, name: str = NAME) -> dict[str, tuple[int, int]]:
    """Return what changes when a run trains on: its checkpoint's file and the time of writing."""
    folder = project.folder / "data" / "06_models" / name
    files = {file: file.stat() for file in folder.glob("*/*/checkpoint.pt")}
    return {str(file.relative_to(folder)): (stat.st_size, stat.st_mtime_ns) for file, stat in files.items()}


def family(project: Project) -> tuple[list[Any], list[Any]]:
    """Return the tuning's MLflow runs: those of whole tunings, and those of trials."""
    runs = project.tracked(NAME)
    whole = [run for run in runs if run.data.tags.get("kind") == "tuning"]
    return whole, [run for run in runs if run not in whole]


def chosen(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.folder / FILE).read_text())
    return found


def trials(project: Project) -> dict[str, list[dict[str, Any]]]:
    """Return the candidates by method, without MLflow's ids and without times."""
    content = json.loads((project.folder / "data" / "07_model_output" / NAME / "cells.json").read_text())
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in content["cells"]:
        if cell["kept"]:
            cell["kept"] = {name: cell["kept"][name] for name in ("final", "curve")}
        found.setdefault(cell["method"], []).append(cell)
    return found


class TestFinished:
    def test_one_mlflow_run_per_trial_below_one_parent(self, tuned: Project) -> None:
        (parent,), runs = family(tuned)
        assert {run.data.tags[PARENT] for run in runs} == {parent.info.run_id}
        assert {run.info.status for run in (parent, *runs)} == {"FINISHED"}
        assert {run.data.tags["seed"] for run in runs} == {"100"}
        count = {method: [run.data.tags["method"] for run in runs].count(method) for method in METHODS}
        assert count == {"kt_pfl_params": 2, "ditto": 2, "local": 1}  # conf/test has two candidates
        assert (parent.info.run_name, parent.data.params["trials"]) == (NAME, "2")

    def test_configured_values_are_the_first_trial(self, tuned: Project) -> None:
        found = trials(tuned)
        assert {method: made[0]["value"] for method, made in found.items()} == {
            "kt_pfl_params": {"rho": 2.0, "mu": 1.0},
            "ditto": {"coupling": 0.1},
            "local": {},
        }
        assert all(made[1]["value"] != made[0]["value"] for made in found.values() if len(made) > 1)

    def test_chosen_is_the_highest_validation_accuracy_in_mlflow(self, tuned: Project) -> None:
        """And not the highest test accuracy, which is among the metrics too."""
        _, runs = family(tuned)
        for method, made in chosen(tuned)["methods"].items():
            own = [run for run in runs if run.data.tags["method"] == method]
            best = max(own, key=lambda run: run.data.metrics["final/validation"])
            assert made["run_ids"] == [best.info.run_id]
            assert made["validation"] == pytest.approx(best.data.metrics["final/validation"])
            assert made["trials"] == len(own)
            assert {f"method.{name}": str(value) for name, value in made["values"].items()} == {
                name: value for name, value in best.data.params.items() if name.startswith("method.")
            }

    def test_the_parent_holds_the_report_and_the_values(self, tuned: Project) -> None:
        (parent,), _ = family(tuned)
        held = {file.path for file in tuned.client().list_artifacts(parent.info.run_id)}
        assert held == {
            "report.html",
            "report.md",
            "tables",
            "table.txt",
            "figures",
            "trials.csv",
            "hyperparameters.json",
        }
        assert chosen(tuned)["run_id"] == parent.info.run_id
        assert chosen(tuned)["key"] == parent.data.tags["key"]
        for method, made in chosen(tuned)["methods"].items():
            assert parent.data.metrics[f"validation/{method}"] == made["validation"]

    def test_table(self, tuned: Project) -> None:
        (trials,) = (tuned.folder / "data" / "08_reporting" / NAME).glob("*/trials.csv")
        with trials.open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["method"], row["trial"]) for row in rows] == [
            *(("kt_pfl_params", "1"), ("kt_pfl_params", "2"), ("ditto", "1"), ("ditto", "2"), ("local", "1")),
        ]
        assert [row["method"] for row in rows if row["chosen"] == "1"] == list(METHODS)


class TestAgain:
    def test_trains_nothing(self, copied: Project) -> None:
        before, text = checkpoints(copied), (copied.folder / FILE).read_text()
        assert len(before) == 5
        copied.run(NAME)
        assert checkpoints(copied) == before
        assert (copied.folder / FILE).read_text() == text
        assert [len(runs) for runs in family(copied)] == [1, 5]

    def test_interrupted_ends_as_if_nothing_had_happened(self, tracked: Callable[[], Project], tuned: Project) -> None:
        project, rounds = tracked(), 0

        def press_ctrl_c(run: MlflowRun, record: Any) -> None:
            nonlocal rounds
            rounds += not run.complete
            if rounds == 6:  # in the third trial: two rounds each, and this one's second
                raise KeyboardInterrupt
            original(run, record)

        original = MlflowRun.round
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MlflowRun, "round", press_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                project.run(NAME)
        (parent,), runs = family(project)
        assert [run.info.status for run in (parent, *runs)] == ["KILLED", "FINISHED", "FINISHED", "KILLED"]
        assert not (project.folder / FILE).exists()
        before = checkpoints(project)
        project.run(NAME, namespaces=["tune"])
        assert {file: checkpoints(project)[file] for file in before} == before  # the third had all its rounds
        assert trials(project) == trials(tuned)
        (resumed,), again = family(project)
        assert (resumed.info.run_id, resumed.info.status) == (parent.info.run_id, "FINISHED")
        assert {run.info.run_id for run in runs} <= {run.info.run_id for run in again}
        assert len(again) == 5

    def test_values_and_report_without_training(self, copied: Project) -> None:
        """Both follow from the trials; those of other settings are refused."""
        shutil.rmtree(copied.folder / "data" / "06_models")
        (copied.folder / FILE).unlink()
        copied.run(NAME, namespaces=["report"])
        assert set(chosen(copied)["methods"]) == set(METHODS)
        with pytest.raises(ClickException, match=r"were made with other settings \(rounds=2, now 1\)"):
            copied.run(NAME, experiment=EXPERIMENT, namespaces=["report"], rounds=1)
        assert not checkpoints(copied)


class TestComparison:
    @pytest.fixture(scope="class")
    def compared(self, tuned: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
        project = Project(tmp_path_factory.mktemp("compared") / "project")
        shutil.copytree(tuned.folder, project.folder)
        project.run(f"compare_{EXPERIMENT}", experiment=EXPERIMENT, hyperparameters="tuned", seeds=[0])
        return project

    def test_it_runs_with_the_chosen_values(self, compared: Project) -> None:
        for method, made in chosen(compared)["methods"].items():
            (run,) = [run for run in compared.tracked(EXPERIMENT) if run.data.tags["method"] == method]
            assert {f"method.{name}": str(value) for name, value in made["values"].items()} == {
                name: value for name, value in run.data.params.items() if name.startswith("method.")
            }
        (folder,) = (compared.folder / "data" / "08_reporting" / f"compare_{EXPERIMENT}").glob("digits-two_labels-*")
        assert "Tuned for every method" in (folder / "report.md").read_text()

    def test_equal_values_are_the_same_runs_wherever_they_are_from(self, compared: Project) -> None:
        before, runs = checkpoints(compared, EXPERIMENT), compared.tracked(EXPERIMENT)
        assert len(before) == 3
        same = {method: made["values"] for method, made in chosen(compared)["methods"].items()}
        boxes = ["data", *(f"methods.{method}" for method in METHODS)]
        compared.run(f"compare_{EXPERIMENT}", experiment=EXPERIMENT, namespaces=boxes, methods=same, seeds=[0])
        assert checkpoints(compared, EXPERIMENT) == before
        assert [run.info.run_id for run in compared.tracked(EXPERIMENT)] == [run.info.run_id for run in runs]

    def test_another_partition_is_refused_before_anything_is_trained(self, copied: Project) -> None:
        before = copied.written()
        with pytest.raises(ClickException, match=r"were tuned for other settings \(partition\.scheme='two_labels',"):
            copied.run(
                f"compare_{EXPERIMENT}",
                experiment=EXPERIMENT,
                hyperparameters="tuned",
                partition={"scheme": "all_labels"},
            )
        assert not checkpoints(copied, EXPERIMENT)
        assert [file for file in copied.written() if file not in before and "/03_primary/" not in file] == []


class TestRefused:
    """Nothing is tracked here."""

    def test_tuned_without_a_tuning(self, untracked: Project) -> None:
        """The message names the place where a tuning would leave its file."""
        with pytest.raises(ClickException, match=rf"there is no {FILE}; run `kedro run --pipelines={NAME}` first"):
            untracked.run(f"compare_{EXPERIMENT}", experiment=EXPERIMENT, hyperparameters="tuned")
        assert not checkpoints(untracked, EXPERIMENT)

    def test_no_validation_images_to_choose_by(self, untracked: Project) -> None:
        with pytest.raises(
            ClickException, match=r"client 0 has no validation samples with seed 100; raise partition\."
        ):
            untracked.run(NAME, experiment=EXPERIMENT, partition={"validation_share": 0.0})
        assert untracked.written() == []

    def test_a_sweep_over_tuned_hyperparameters(self, untracked: Project) -> None:
        with pytest.raises(ClickException, match=r"hetero_digits\.hyperparameters is tuned, and a sweep runs"):
            untracked.run("sweep_rho", hyperparameters="tuned")
        assert untracked.written() == []


class TestDiverging:
    """A candidate whose training diverges is no end; if all of a method's do, that is."""

    def test_one_candidate(self, untracked: Project) -> None:
        untracked.run(NAME, experiment=NAME, spaces={"ditto": {"coupling": {"low": 1e5, "high": 1e6}}})
        first, second = trials(untracked)["ditto"]
        assert second["value"]["coupling"] >= 1e5
        assert second["kept"] is None
        assert chosen(untracked)["methods"]["ditto"]["values"] == first["hyperparameters"]
        (place,) = (untracked.folder / "data" / "08_reporting" / NAME).glob("*/report.md")
        page = place.read_text()
        assert "diverged" in page.partition("## Trials")[2]

    def test_all_candidates(self, untracked: Project) -> None:
        with pytest.raises(ClickException, match=r"all candidates of ditto diverged, .* Lower training\.learning_rate"):
            untracked.run(NAME, experiment=EXPERIMENT, training={"learning_rate": 1e6})
        assert not (untracked.folder / FILE).exists()


def test_trials_track_validation_accuracy_and_nothing_of_the_test_samples(tuned: Project) -> None:
    _, trials = family(tuned)
    for run in trials:
        named = {
            name for name in run.data.metrics if name.startswith(("accuracy/", "final/", "measures/", "loss/test"))
        }
        expected = {"accuracy/validation", "final/validation", "final/best_round_validation", "final/megabytes"}
        assert named == expected
