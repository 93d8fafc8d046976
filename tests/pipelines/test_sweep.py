"""Sweeps, run as a user does: one MLflow run per value, method and seed below one parent, and nothing trained twice."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import ClickException
from project_copy import Project

from ktpfl_pipeline.tracking import PARENT

NAME = "sweep_rho"
VALUES = [0.1, 0.7]  # of conf/test, with two seeds
ONE_SEED: dict[str, Any] = {"hetero_digits": {"seeds": [0]}}


def checkpoints(project: Project, name: str = NAME) -> dict[str, tuple[int, int]]:
    """Return what changes when a run trains on, by the run's folder: its checkpoint's file and the time of writing."""
    files = (project.folder / "data" / "06_models" / name).glob("*/*/checkpoint.pt")
    return {str(file.parent): (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def family(project: Project, name: str = NAME) -> tuple[list[Any], list[Any]]:
    """Return the sweep's MLflow runs: those of whole sweeps, and those of points."""
    runs = project.tracked(name)
    whole = [run for run in runs if run.data.tags.get("kind") == "sweep"]
    return whole, [run for run in runs if run not in whole]


def table(project: Project, name: str = NAME) -> list[dict[str, str]]:
    with max(
        (project.folder / "data" / "08_reporting" / name).glob("*/table.csv"), key=lambda file: file.stat().st_mtime_ns
    ).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    return (NAME, "sweep_public_source", "sweep_public_batch", "sweep_adversaries_digits")


@pytest.fixture(scope="module")
def swept(tracked: Callable[[], Project]) -> Project:
    project = tracked()
    project.run(NAME, drawn=True)
    return project


class TestFinished:
    def test_one_mlflow_run_per_value_method_and_seed_below_one_parent(self, swept: Project) -> None:
        (parent,), points = family(swept)
        assert sorted(run.info.run_name for run in points) == sorted(
            [f"rho={rho} · kt_pfl · seed {seed}" for rho in VALUES for seed in (0, 1)]
            + [f"local · seed {seed}" for seed in (0, 1)]  # ρ does not touch it: it ran once
        )
        assert {run.data.tags[PARENT] for run in points} == {parent.info.run_id}
        assert {run.info.status for run in (parent, *points)} == {"FINISHED"}
        assert {run.data.params["method.rho"] for run in points if run.data.tags["method"] == "kt_pfl"} == {
            "0.1",
            "0.7",
        }

    def test_the_parent_says_what_was_swept_and_holds_the_report(self, swept: Project) -> None:
        (parent,), _ = family(swept)
        assert parent.info.run_name == NAME
        assert parent.data.params["parameter"] == "methods.kt_pfl.rho"
        assert parent.data.params["values"] == str(VALUES)
        client = swept.client()
        held = {file.path for place in ("", "figures") for file in client.list_artifacts(parent.info.run_id, place)}
        figure = {"figures/accuracy.svg", "figures/preview.png"}
        assert held == {"report.html", "report.md", "figures", "tables", "table.csv", "table.txt"} | figure

    def test_table_and_figure(self, swept: Project) -> None:
        """Each number of the table is the mean over seeds of what the MLflow runs ended with."""
        rows = table(swept)
        assert [(row["method"], row["methods.kt_pfl.rho"]) for row in rows] == [
            ("kt_pfl", "0.1"),
            ("kt_pfl", "0.7"),
            ("local", "any"),
        ]
        assert sum(row["chosen"] == "1" for row in rows) == 1
        _, points = family(swept)
        for row in rows:
            label = "local" if row["method"] == "local" else f"rho={row['methods.kt_pfl.rho']} "
            ends = [run.data.metrics["final/after_transfer"] for run in points if run.info.run_name.startswith(label)]
            assert float(row["test"]) == pytest.approx(sum(ends) / 2)
        (folder,) = (swept.folder / "data" / "08_reporting" / NAME).iterdir()
        assert (folder / "figures" / "accuracy.svg").stat().st_size > 100

    def test_every_run_is_named_on_the_page(self, swept: Project) -> None:
        (place,) = (swept.folder / "data" / "08_reporting" / NAME).glob("*/report.html")
        page = place.read_text()
        assert all(run.info.run_id in page for run in family(swept)[1])

    def test_again_trains_nothing(self, swept: Project) -> None:
        before, rows, runs = checkpoints(swept), table(swept), family(swept)
        assert len(before) == 6
        swept.run(NAME)
        assert checkpoints(swept) == before
        assert table(swept) == rows
        again = family(swept)
        assert [len(found) for found in again] == [1, 6]
        assert [run.info.run_id for run in again[1]] == [run.info.run_id for run in runs[1]]

    def test_another_headline_leads_a_report_on_the_same_runs(self, swept: Project) -> None:
        before = checkpoints(swept)
        swept.run(NAME, experiment=NAME, others={"hetero_digits": {"headline": "macro_f1"}})
        assert checkpoints(swept) == before
        assert all(0 < float(row["macro_f1"]) < 1 for row in table(swept))


def test_another_value_trains_only_what_is_new(swept: Project, tmp_path: Path) -> None:
    """The finished runs go below the new parent: one parent has all that its table has."""
    project = Project(tmp_path / "project")
    shutil.copytree(swept.folder, project.folder)
    more, before = [*VALUES, 2.0], checkpoints(project)
    project.run(NAME, experiment=NAME, values=more)
    after = checkpoints(project)
    assert {folder: after[folder] for folder in before} == before
    assert len(after) == len(before) + 2
    (old, again), points = family(project)
    assert (old.data.params["values"], again.data.params["values"]) == (str(VALUES), str(more))
    assert again.info.status == "FINISHED"
    assert len(points) == 8
    assert {run.data.tags[PARENT] for run in points} == {again.info.run_id}
    assert [row["methods.kt_pfl.rho"] for row in table(project)] == ["0.1", "0.7", "2.0", "any"]


class TestPublicSource:
    """The paper's Table 5: the same private images beside several public sets. Nothing is tracked here."""

    NAME = "sweep_public_source"

    @pytest.fixture
    def project(self, untracked: Project) -> Project:
        images = np.random.default_rng(0).integers(0, 256, (100, 28, 28), dtype=np.uint8)
        np.savez(untracked.folder / "data" / "01_raw" / "noise.npz", images=images, labels=np.arange(100) % 10)
        return untracked

    def test_each_source_has_its_row(self, project: Project) -> None:
        all_digits = {name: {**own, "private": {"samples": None}} for name, own in ONE_SEED.items()}  # of few, rows tie
        project.run(self.NAME, experiment=self.NAME, others=all_digits, values=["npz:noise.npz", "open_part"])
        rows = table(project, self.NAME)
        assert [(row["method"], row["public.source"]) for row in rows] == [
            *(("kt_pfl", "npz:noise.npz"), ("kt_pfl", "open_part")),
            *(("local", "npz:noise.npz"), ("local", "open_part")),  # an open part leaves fewer private images
        ]
        assert len({row["test"] for row in rows}) == 4

    def test_what_cannot_be_is_refused_before_anything_is_trained(self, project: Project) -> None:
        with pytest.raises(
            ClickException,
            match=r"^sweep_public_batch cannot set public\.batch to 600: .* lower public\.batch to 135 or less",
        ):
            project.run("sweep_public_batch", experiment="sweep_public_batch", values=[60, 600])
        with pytest.raises(
            ClickException, match=r"^sweep_public_source cannot set public\.source to 'npz:none\.npz': "
        ):
            project.run(self.NAME, experiment=self.NAME, values=["open_part", "npz:none.npz"])
        assert project.written() == ["data/01_raw/noise.npz"]


def test_a_value_at_which_training_diverges_leaves_the_others(untracked: Project) -> None:
    name = "sweep_public_batch"
    asked = {"parameter": "training.learning_rate", "values": [1e30, 0.05]}
    with pytest.raises(
        ClickException,
        match=r"^2 of 4 runs of sweep_public_batch diverged, and the others are finished\. Take the values .* give the "
        r"same command again\. learning_rate=1e\+30, KT-pFL, seed 0: Client .* learning_rate=1e\+30, Local-only, seed",
    ):
        untracked.run(name, experiment=name, others=ONE_SEED, **asked)
    assert len(kept := checkpoints(untracked, name)) == 2
    untracked.run(name, experiment=name, others=ONE_SEED, **{**asked, "values": [0.05]})
    assert checkpoints(untracked, name) == kept, "nothing is trained again"
    assert len(table(untracked, name)) == 2


def test_adversaries(untracked: Project) -> None:
    """The honest clients' matrix says what weight the adversaries have, and so does the table."""
    name = "sweep_adversaries_digits"
    untracked.run(name, experiment=name, others=ONE_SEED, values=[0.2], methods=["kt_pfl", "fedmd"])
    rows = table(untracked, name)
    assert [(row["method"], row["adversaries.share"]) for row in rows] == [("kt_pfl", "0.2"), ("fedmd", "0.2")]
    assert 0 < float(rows[0]["trust"]) <= 5  # of five clients one has all: 5/N
    assert rows[1]["trust"] == ""
