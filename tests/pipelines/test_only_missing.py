"""`kedro run --only-missing-outputs`: what is cut short is made again, and what is whole is left alone."""

from collections.abc import Callable
from typing import Any

import pytest
from project_copy import EXPERIMENT, Project

SETTINGS: dict[str, Any] = {"seeds": [0], "rounds": 1, "clients": 5, "theorem_samples": 0}
OUTPUTS = {
    "partition": f"data/03_primary/{EXPERIMENT}/partition.csv",
    "figure": f"data/03_primary/{EXPERIMENT}/labels_per_client.json",
    "result": f"data/07_model_output/{EXPERIMENT}/kt_pfl/result.json",
    "report": f"data/08_reporting/{EXPERIMENT}/digits-8x8x1_to_28x28x1-5_clients-two_labels-open_part/table.tex",
}


@pytest.fixture(scope="module")
def finished(tracked: Callable[[], Project]) -> Project:
    project = tracked()
    project.run(EXPERIMENT, **SETTINGS)
    return project


def content(project: Project, name: str) -> bytes:
    return (project.folder / OUTPUTS[name]).read_bytes()


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_file_cut_short_is_not_taken_for_done(finished: Project, name: str) -> None:
    whole = content(finished, name)
    file = finished.folder / OUTPUTS[name]
    file.write_bytes(whole[: len(whole) // 2])
    finished.run(EXPERIMENT, only_missing=True, **SETTINGS)
    assert content(finished, name) == whole


def test_what_is_whole_is_left_alone(finished: Project) -> None:
    def times() -> dict[str, int]:
        return {name: (finished.folder / file).stat().st_mtime_ns for name, file in OUTPUTS.items()}

    before = times()
    finished.run(EXPERIMENT, only_missing=True, **SETTINGS)
    assert times() == before
