"""A whole comparison on real digits, from the configuration to the report, in projects of its own."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from project_copy import EXPERIMENT, SAMPLES, Project, timeless
from toy import same

from ktpfl_pipeline import pipeline_registry
from ktpfl_pipeline.config.schema import Text
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.runs.samples import load_private

METHODS = ("kt_pfl", "fedmd", "local")
COMPARED = ("kt_pfl", "fedmd", "fedproto", "local")
SEEDS = (0, 1)
CLIENTS, ROUNDS = 5, 2
COMPARE = f"compare_{EXPERIMENT}"


@dataclass(frozen=True)
class Snapshot:
    """What a run left behind, as it was then."""

    partition: dict[int, list[dict[str, str]]]
    finished: dict[str, dict[int, dict[str, Any]]]
    checkpoints: dict[tuple[str, int], dict[str, Any]]
    results: dict[str, dict[str, Any]]
    tracked: dict[str, Any]
    points: dict[tuple[str, str], list[tuple[int, float]]]

    @classmethod
    def of(cls, project: Project) -> "Snapshot":
        client, tracked = project.client(), {run.info.run_id: run for run in project.tracked()}
        outputs = project.folder / "data" / "07_model_output" / EXPERIMENT
        return cls(
            partition=project.partition(),
            finished={method: project.finished(method) for method in METHODS},
            checkpoints={(method, seed): project.checkpoint(method, seed) for method in METHODS for seed in SEEDS},
            results={method: json.loads((outputs / method / "result.json").read_text()) for method in METHODS},
            tracked=tracked,
            points={
                (run_id, metric): [(point.step, point.value) for point in client.get_metric_history(run_id, metric)]
                for run_id, run in tracked.items()
                for metric in run.data.metrics
            },
        )


@pytest.fixture(scope="module", autouse=True)
def some_methods() -> Iterator[None]:
    """Four are enough here; the contract is tested for all, and test_tuning.py compares methods that send models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_registry, "compared", lambda one_architecture: COMPARED)
        yield


@pytest.fixture(scope="module")
def project(tracked: Callable[[], Project]) -> Project:
    return tracked()


@pytest.fixture(scope="module")
def first(project: Project) -> Snapshot:
    """Four methods with two seeds; three of them are looked at."""
    project.run(COMPARE, drawn=True, theorem_samples=20)
    return Snapshot.of(project)


@pytest.fixture(scope="module")
def again(project: Project, first: Snapshot) -> Snapshot:
    """The same once more."""
    project.run(COMPARE, theorem_samples=20)
    return Snapshot.of(project)


@pytest.fixture(scope="module")
def report(project: Project, first: Snapshot) -> Path:
    (place,) = (project.folder / "data" / "08_reporting" / COMPARE).iterdir()
    return place


def run_of(snapshot: Snapshot, method: str, seed: int) -> Any:
    (run,) = [
        run
        for run in snapshot.tracked.values()
        if (run.data.tags["method"], run.data.tags["seed"]) == (method, str(seed))
    ]
    return run


EVERY_RUN = [(method, seed) for method in METHODS for seed in SEEDS]


class TestPartition:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_no_image_is_at_two_places(self, first: Snapshot, seed: int) -> None:
        rows = first.partition[seed]
        indices = [int(row["index"]) for row in rows]
        assert len(indices) == len(set(indices)) == SAMPLES[EXPERIMENT] - 135  # 30 % are public
        assert {int(row["client"]) for row in rows} == set(range(CLIENTS))
        assert {row["split"] for row in rows} == {"train", "validation", "test"}

    def test_labels_are_those_of_the_images(self, first: Snapshot) -> None:
        own = SimpleNamespace(source="digits", classes=None, samples=SAMPLES[EXPERIMENT], shape=None)
        asked = SimpleNamespace(
            private=own,
            image=None,
            text=Text(),
            partition=SimpleNamespace(scheme="two_labels"),
            private_samples=lambda available: SAMPLES[EXPERIMENT],
        )
        target = load_private(asked, Path()).labels
        assert all(int(row["label"]) == target[int(row["index"])] for rows in first.partition.values() for row in rows)

    def test_two_labels_each_and_a_quarter_to_test_on(self, first: Snapshot) -> None:
        for client in range(CLIENTS):
            own = [row for row in first.partition[0] if int(row["client"]) == client]
            assert len({row["label"] for row in own}) == 2
            assert sum(row["split"] == "test" for row in own) == math.ceil(len(own) / 4)

    def test_every_seed_has_its_own(self, first: Snapshot) -> None:
        assert [row["index"] for row in first.partition[0]] != [row["index"] for row in first.partition[1]]


class TestResults:
    @pytest.mark.parametrize("method", METHODS)
    def test_every_seed_ran_to_its_end(self, first: Snapshot, method: str) -> None:
        assert sorted(first.finished[method]) == list(SEEDS)
        for run in first.finished[method].values():
            assert [record["round"] for record in run["history"]] == list(range(1, ROUNDS + 1))
            for record in run["history"]:
                assert record["cohort"] == list(range(CLIENTS))
                assert set(record["accuracy"]) == {"after_local", "after_transfer", "validation"}
                assert all(len(values) == CLIENTS for values in record["accuracy"].values())
                assert record["seconds"]["round"] > 0

    @pytest.mark.parametrize("method", METHODS)
    def test_final_is_the_mean_of_the_last_evaluations(self, first: Snapshot, method: str) -> None:
        """Two rounds are fewer than five, so all count."""
        by_hand = fmean(
            fmean(record["accuracy"]["after_transfer"])
            for run in first.finished[method].values()
            for record in run["history"]
        )
        assert first.results[method]["final"]["after_transfer"]["mean"] == pytest.approx(by_hand, abs=1e-12)

    def test_label_counts_are_those_of_the_partition(self, first: Snapshot) -> None:
        for method, seed in EVERY_RUN:
            counted = Counter((int(row["client"]), int(row["label"])) for row in first.partition[seed])
            counts = first.finished[method][seed]["label_counts"]
            assert {(n, k): count for n, row in enumerate(counts) for k, count in enumerate(row) if count} == counted

    def test_all_methods_start_and_train_alike(self, first: Snapshot) -> None:
        """Fairness: the same data, models and draws, so the first local training is the same for everyone."""
        for seed in SEEDS:
            records = [first.finished[method][seed]["history"][0] for method in METHODS]
            assert len({str(record["accuracy"]["after_local"]) for record in records}) == 1
            assert len({str(record["loss"]["train"]) for record in records}) == 1

    def test_only_what_is_sent_costs_bytes(self, first: Snapshot) -> None:
        assert first.results["local"]["traffic"] == dict.fromkeys(first.results["local"]["traffic"], 0)
        batch, classes, pixels = 60, 10, 28 * 28
        rounds = CLIENTS * ROUNDS
        for method in ("kt_pfl", "fedmd"):
            traffic = first.results[method]["traffic"]
            assert traffic["knowledge_up"] == traffic["knowledge_down"] == rounds * batch * classes * 4
            assert traffic["public_down"] == rounds * batch * pixels
            assert traffic["parameters_up"] == traffic["parameters_down"] == 0

    def test_the_matrix_is_learned(self, first: Snapshot) -> None:
        for seed in SEEDS:
            matrix = torch.tensor(first.finished["kt_pfl"][seed]["coefficients"])
            assert matrix.shape == (CLIENTS, CLIENTS)
            assert torch.allclose(matrix.sum(dim=1), torch.ones(CLIENTS), atol=1e-6)
            assert (matrix >= 0).all()
            assert not torch.allclose(matrix, torch.full_like(matrix, 1 / CLIENTS), atol=1e-3)
            assert first.finished["fedmd"][seed]["coefficients"] is None


class TestReport:
    def test_files(self, report: Path) -> None:
        names = {file.name for file in report.iterdir()}
        tables = (
            "runs",
            "rounds",
            "clients",
            "theorem",
            "differences",
            "architectures",
            "classes",
            "confusion",
            "choices",
            "decisions",
        )
        pages = {"report.html", "report.md", "tables", "table.txt", "SHA256SUMS", "comparison.json", "figures"}
        assert names == pages | {f"{table}.csv" for table in tables}
        assert re.fullmatch("digits-two_labels-[0-9a-f]{8}", report.name)

    @pytest.mark.parametrize(
        "name",
        ["accuracy", "clients", "labels", "coefficients_kt_pfl", "matrix_over_rounds", "theorem", "traffic"],
    )
    def test_every_figure_as_svg(self, report: Path, name: str) -> None:
        assert "</svg>" in (report / "figures" / f"{name}.svg").read_text()

    def test_numbers_are_those_of_the_results(self, report: Path, first: Snapshot) -> None:
        for name in ("report.html", "report.md", "tables/table.tex", "table.txt"):
            text = (report / name).read_text()
            for method, title in {"kt_pfl": "KT-pFL", "fedmd": "FedMD", "local": "Local-only"}.items():
                assert title in text, name
                assert f"{100 * first.results[method]['final']['after_transfer']['mean']:.1f}" in text, (name, method)

    def test_it_names_the_runs(self, report: Path, first: Snapshot) -> None:
        text = (report / "report.md").read_text()
        assert all(run["run_id"] in text for method in METHODS for run in first.finished[method].values())

    def test_it_is_an_artifact_of_one_run(self, project: Project, report: Path, again: Snapshot) -> None:
        """Of one, although it was made twice."""
        (run,) = project.reports()
        assert run.info.run_name == f"report · {COMPARE} · {report.name}"
        assert run.info.status == "FINISHED"
        folder = Path(project.client().download_artifacts(run.info.run_id, ""))
        logged = {file.relative_to(folder).as_posix() for file in folder.rglob("*.*")}
        assert logged == {file.relative_to(report).as_posix() for file in report.rglob("*.*")}
        for name in ("report.html", "comparison.json", "runs.csv"):
            assert (folder / name).read_text() == (report / name).read_text()


class TestMlflow:
    def test_one_finished_run_per_method_and_seed(self, first: Snapshot) -> None:
        assert len(first.tracked) == len(COMPARED) * len(SEEDS)
        assert {run.info.status for run in first.tracked.values()} == {"FINISHED"}
        for method, seed in EVERY_RUN:
            assert run_of(first, method, seed).info.run_id == first.finished[method][seed]["run_id"]

    @pytest.mark.parametrize(("method", "seed"), EVERY_RUN)
    def test_tags_and_name(self, first: Snapshot, method: str, seed: int) -> None:
        run = run_of(first, method, seed)
        expected = {"experiment": EXPERIMENT, "partition": "two_labels", "key": first.finished[method][seed]["key"]}
        assert expected.items() <= run.data.tags.items()
        assert run.info.run_name == f"{method} · two_labels · seed {seed}"

    def test_parameters_are_flat_and_complete(self, first: Snapshot) -> None:
        run = run_of(first, "kt_pfl", 1)
        expected = {
            "seed": "1",
            "rounds": "2",
            "architectures": "['mlp', 'cnn_bn']",
            "training.learning_rate": "0.05",
            "public.batch": "60",
            "compute.device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "compute.dtype": "float32",
            "method.update": "eg",
            "method.rho": str(KTpFL().rho),
        }
        assert expected.items() <= run.data.params.items()
        assert {"data", "code", "torch"} <= run.data.params.keys()

    @pytest.mark.parametrize(("method", "seed"), EVERY_RUN)
    def test_a_point_per_round_and_metric(self, first: Snapshot, method: str, seed: int) -> None:
        run = run_of(first, method, seed)
        history = first.finished[method][seed]["history"]
        expected = {
            "accuracy/after_local": lambda record: fmean(record["accuracy"]["after_local"]),
            "accuracy/after_transfer": lambda record: fmean(record["accuracy"]["after_transfer"]),
            "accuracy/validation": lambda record: fmean(record["accuracy"]["validation"]),
            "loss/train": lambda record: fmean(record["loss"]["train"]),
            "bytes/knowledge_up": lambda record: sum(record["traffic"]["knowledge_up"]),
            "seconds/round": lambda record: record["seconds"]["round"],
        }
        for metric, value in expected.items():
            points = first.points[run.info.run_id, metric]
            assert [step for step, _ in points] == [1, 2]
            assert [value for _, value in points] == pytest.approx([value(record) for record in history], rel=1e-12)
        for (run_id, metric), points in first.points.items():
            assert len(points) == (1 if metric.startswith(("final/", "class_accuracy/")) else ROUNDS), (run_id, metric)

    @pytest.mark.parametrize(("method", "seed"), EVERY_RUN)
    def test_final_numbers(self, first: Snapshot, method: str, seed: int) -> None:
        metrics = run_of(first, method, seed).data.metrics
        rounds = [fmean(record["accuracy"]["after_transfer"]) for record in first.finished[method][seed]["history"]]
        assert metrics["final/after_transfer"] == pytest.approx(fmean(rounds))
        assert metrics["final/best_round_after_transfer"] == pytest.approx(max(rounds))

    @pytest.mark.parametrize("method", METHODS)
    def test_artifacts(self, project: Project, first: Snapshot, method: str) -> None:
        client, run = project.client(), run_of(first, method, 0)
        names = {file.path for file in client.list_artifacts(run.info.run_id)}
        expected = {"run.json", "clients.json", "confusion.json", "confusion.png"}
        assert names == (expected | {"coefficients.png", "coefficients.json"} if method == "kt_pfl" else expected)
        assert Path(run.info.artifact_uri.removeprefix("file://")).is_relative_to(project.folder / "mlruns")
        logged = json.loads(Path(client.download_artifacts(run.info.run_id, "run.json")).read_text())
        assert logged == first.finished[method][0]


class TestTheSameAgain:
    def test_no_new_run_and_nothing_logged_twice(self, first: Snapshot, again: Snapshot) -> None:
        assert again.tracked.keys() == first.tracked.keys()
        assert again.points == first.points
        for run_id, run in again.tracked.items():
            assert run.info.status == "FINISHED"
            assert run.info.end_time == first.tracked[run_id].info.end_time

    def test_equal_results(self, first: Snapshot, again: Snapshot) -> None:
        """The seconds too: what was finished is taken as it is."""
        assert again.finished == first.finished
        assert again.results == first.results
        assert again.partition == first.partition


class TestSeeds:
    def test_another_seed_differs(self, first: Snapshot) -> None:
        one, other = (first.checkpoints["kt_pfl", seed]["state"] for seed in SEEDS)
        assert not same(one["models"], other["models"])
        assert not same(one["coefficients"], other["coefficients"])

    def test_another_seed_is_another_run(self, project: Project, first: Snapshot, again: Snapshot) -> None:
        project.train(seeds=[7], rounds=1)
        new = [run for run in project.tracked() if run.info.run_id not in first.tracked]
        assert [(run.data.tags["method"], run.data.tags["seed"], run.info.status) for run in new] == [
            ("kt_pfl", "7", "FINISHED")
        ]
        assert sorted(project.partition()) == [7]
        assert project.finished("kt_pfl")[7]["run_id"] == new[0].info.run_id

    def test_the_same_in_a_fresh_project_is_bit_identical(self, first: Snapshot, untracked: Project) -> None:
        """Nothing of a run depends on the machine's state, the other methods, the other seeds, or on being tracked."""
        untracked.train(seeds=[0], theorem_samples=20)
        expected, found = first.checkpoints["kt_pfl", 0], untracked.checkpoint("kt_pfl")
        assert same(found["settings"], expected["settings"])
        assert same(found["state"], expected["state"])
        assert same(found["coefficients"], expected["coefficients"])
        assert timeless(found["history"]) == timeless(expected["history"])
        run = untracked.finished("kt_pfl")[0]
        assert run["key"] == first.finished["kt_pfl"][0]["key"]
        assert run["run_id"] == ""
