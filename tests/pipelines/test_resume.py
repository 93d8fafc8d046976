"""A run killed and started again ends as if nothing had happened, in the same MLflow run.

Here at two moments that matter; at random ones, and by the system, in `tests/faults`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from project_copy import EXPERIMENT, PowerCut, Project, timeless
from toy import same

from ktpfl_pipeline.tracking.mlflow import MlflowRun

SEED, ROUNDS = 3, 3
SETTINGS = {"seeds": [SEED], "rounds": ROUNDS}
MOMENTS = [
    "before a point",  # the checkpoint knows of the round, MLflow does not yet
    "before the end is logged",  # every round is there; figures, matrix and final numbers are not
]


@dataclass(frozen=True)
class Killed:
    """A project in which a run was killed: what it had kept by then, and its MLflow run."""

    project: Project
    checkpoint: dict[str, Any]
    tracked: Any


@pytest.fixture(scope="module")
def undisturbed(tracked: Callable[[], Project]) -> Project:
    project = tracked()
    project.train(**SETTINGS)
    return project


@pytest.fixture(scope="module", params=MOMENTS)
def killed(request: pytest.FixtureRequest, tracked: Callable[[], Project]) -> Killed:
    project = tracked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MlflowRun, "stop", lambda run, status: None)
        if request.param == "before a point":
            usual = MlflowRun.round
            patch.setattr(MlflowRun, "round", lambda run, r: usual(run, r) if r.round < 2 else cut_power())
        else:
            patch.setattr(MlflowRun, "finish", cut_power)
        with pytest.raises(PowerCut):
            project.run(EXPERIMENT, **SETTINGS)
    (run,) = project.tracked()
    return Killed(project, project.checkpoint("kt_pfl", SEED), run)


def cut_power(*arguments: Any) -> None:
    raise PowerCut


@pytest.fixture(scope="module")
def resumed(killed: Killed) -> Killed:
    """The same after the run was started again."""
    killed.project.run(EXPERIMENT, **SETTINGS)
    (run,) = killed.project.tracked()
    return Killed(killed.project, killed.project.checkpoint("kt_pfl", SEED), run)


class TestKilled:
    def test_it_was_under_way(self, killed: Killed) -> None:
        """Else the rest of this file would prove nothing."""
        assert killed.tracked.info.status == "RUNNING"
        assert 2 <= len(killed.checkpoint["history"]) <= ROUNDS
        assert not [file for file in killed.project.written() if file.endswith(("result.json", "report.html"))]

    def test_models_matrix_and_history_as_if_nothing_had_happened(self, undisturbed: Project, resumed: Killed) -> None:
        expected = undisturbed.checkpoint("kt_pfl", SEED)
        assert same(resumed.checkpoint["state"], expected["state"])
        assert same(resumed.checkpoint["coefficients"], expected["coefficients"])
        assert same(resumed.checkpoint["settings"], expected["settings"])
        assert timeless(resumed.checkpoint["history"]) == timeless(expected["history"])
        assert len(expected["history"]) == ROUNDS

    def test_what_was_done_was_not_done_again(self, killed: Killed, resumed: Killed) -> None:
        """The rounds before the kill keep even their wall times."""
        done = len(killed.checkpoint["history"])
        assert resumed.checkpoint["history"][:done] == killed.checkpoint["history"]
        assert len(killed.project.checkpoints("kt_pfl", SEED)) == 1
        assert not list(killed.project.folder.rglob("*.partial"))

    def test_the_result(self, undisturbed: Project, resumed: Killed) -> None:
        expected, found = (project.finished("kt_pfl")[SEED] for project in (undisturbed, resumed.project))
        changed = {name for name in expected if expected[name] != found[name]}
        assert changed <= {"run_id", "history"}  # in the history, the wall times
        assert timeless(found["history"]) == timeless(expected["history"])
        assert list((resumed.project.folder / "data/08_reporting" / EXPERIMENT).glob("*/report.html"))

    def test_it_is_the_same_mlflow_run(self, killed: Killed, resumed: Killed) -> None:
        assert resumed.tracked.info.run_id == killed.tracked.info.run_id
        assert resumed.tracked.info.status == "FINISHED"
        assert resumed.tracked.data.params == killed.tracked.data.params
        assert resumed.project.finished("kt_pfl")[SEED]["run_id"] == resumed.tracked.info.run_id

    def test_one_point_per_round_and_metric(self, undisturbed: Project, resumed: Killed) -> None:
        (expected,) = undisturbed.tracked()
        assert resumed.tracked.data.metrics.keys() == expected.data.metrics.keys()
        client = resumed.project.client()
        for metric in expected.data.metrics:
            steps = [point.step for point in client.get_metric_history(resumed.tracked.info.run_id, metric)]
            once = metric.startswith(("final/", "class_accuracy/"))
            assert steps == ([0] if once else list(range(1, ROUNDS + 1))), metric
        timeless_metrics = {name for name in expected.data.metrics if not name.startswith(("seconds/", "system/"))}
        for metric in timeless_metrics:
            assert resumed.tracked.data.metrics[metric] == expected.data.metrics[metric], metric

    def test_all_artifacts(self, resumed: Killed) -> None:
        names = {file.path for file in resumed.project.client().list_artifacts(resumed.tracked.info.run_id)}
        assert names == {f"{name}.{kind}" for name in ("coefficients", "confusion") for kind in ("json", "png")} | {
            "run.json",
            "clients.json",
        }
