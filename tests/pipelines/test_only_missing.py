"""`kedro run --only-missing-outputs`: what is cut short is made again, and what is whole is left alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from project_copy import EXPERIMENT, Project

SETTINGS: dict[str, Any] = {"seeds": [0], "rounds": 1, "clients": 5}
OUTPUTS = {
    "partition": f"data/03_primary/{EXPERIMENT}/partition.csv",
    "result": f"data/07_model_output/{EXPERIMENT}/kt_pfl/result.json",
    "report": f"data/08_reporting/{EXPERIMENT}/*/tables/table.tex",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Nothing is tracked here."""
    project = Project.create(tmp_path_factory.mktemp("finished") / "project")
    project.run(**SETTINGS)
    return project


def output(project: Project, name: str) -> Path:
    """Return the file of an output; of several reports, the newest."""
    return max(project.folder.glob(OUTPUTS[name]), key=lambda file: file.stat().st_mtime_ns)


def content(project: Project) -> dict[str, bytes]:
    return {name: output(project, name).read_bytes() for name in OUTPUTS}


def times(project: Project) -> dict[str, int]:
    return {name: output(project, name).stat().st_mtime_ns for name in OUTPUTS}


@pytest.mark.parametrize("cut", [("partition", "report"), ("result",)], ids=" and ".join)
def test_a_file_cut_short_is_not_taken_for_done(finished: Project, cut: tuple[str, ...]) -> None:
    """Two at a time, where neither is made on the way to the other.

    The table of the partition is written again with the data that a missing result needs, and is the same.
    """
    whole, before = content(finished), times(finished)
    for name in cut:
        output(finished, name).write_bytes(whole[name][: len(whole[name]) // 2])
    finished.run(only_missing=True, **SETTINGS)
    assert content(finished) == whole
    after = times(finished)
    assert {name for name in OUTPUTS if after[name] != before[name]} - {"partition"} == {*cut} - {"partition"}


@pytest.mark.parametrize("how", [{"only_missing": True}, {"namespaces": ["methods.report"]}], ids=str)
def test_a_result_of_other_hyperparameters_is_not_reported_as_if_it_were_of_these(
    finished: Project, how: dict[str, Any]
) -> None:
    report = output(finished, "report")
    whole = report.read_bytes()
    report.write_bytes(whole[:10])
    with pytest.raises(ClickException, match=r"^The result of kt_pfl was .*\(methods\.kt_pfl\.rho=.*, now 0\.123\);"):
        finished.run(**how, **SETTINGS, methods={"kt_pfl": {"rho": 0.123}})
    finished.run(**how, **SETTINGS)
    assert report.read_bytes() == whole


def test_a_partition_of_other_settings_is_not_trained_on_as_if_it_were_of_these(finished: Project) -> None:
    """The data of the runs and the table of who owns what are made together, so the table is never an old one."""
    table, result = (output(finished, name) for name in ("partition", "result"))
    whole = content(finished)
    result.unlink()
    finished.run(only_missing=True, **SETTINGS, partition={"scheme": "all_labels"})
    assert table.read_bytes() != whole["partition"]
    assert json.loads(result.read_text())["runs"][0]["partition"] == "all_labels"
    result.unlink()
    finished.run(only_missing=True, **SETTINGS)
    assert (table.read_bytes(), result.read_bytes()) == (whole["partition"], whole["result"])


def test_data_of_other_settings_are_refused(finished: Project) -> None:
    with pytest.raises(ClickException, match=r"^The data of .* were made with other settings \(partition\.scheme="):
        finished.run(namespaces=["methods.kt_pfl"], **SETTINGS, partition={"scheme": "all_labels"})


def test_what_is_whole_is_left_alone(finished: Project) -> None:
    before = times(finished)
    finished.run(only_missing=True, **SETTINGS)
    assert times(finished) == before
