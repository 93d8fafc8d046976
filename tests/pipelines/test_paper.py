"""The paper's tables and figures, run as a user does, on digits."""

import json
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
from click import ClickException
from project_copy import PowerCut, Project

from ktpfl_pipeline.core.machine.files import alone
from ktpfl_pipeline.runs import paper as papers
from ktpfl_pipeline.runs import run as training
from ktpfl_pipeline.runs import study


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    return ("paper",)


@pytest.fixture
def project(untracked: Project) -> Project:
    return untracked


def paper(project: Project, lost: str = "", **settings: Any) -> str:
    """Run the pipeline, which ends with an error where cells are `lost`, and return its page."""
    with pytest.raises(ClickException, match=f"^{lost} failed, and the report") if lost else nullcontext():
        project.run("paper", others={"paper": settings}, rounds=1, private={"samples": 300})
    return (project.folder / "data/08_reporting/paper/report.md").read_text("utf-8")


def finished(project: Project) -> dict[str, dict[str, Any]]:
    folder = project.folder / "data/07_model_output/paper"
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}


def test_a_plan_trains_nothing(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    page = paper(project, only="table1+figure2", train=False)
    told = capsys.readouterr().out
    assert "8 runs, 0 done, 8 left." in told
    assert "Table 1: digits, all labels" in told
    assert "as above" in told  # of figure 2, which has the same runs
    assert "Nothing is finished yet." in page
    assert finished(project) == {}


def test_killed_in_the_middle_it_goes_on_and_repeats_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[tuple[str, int]] = []
    run_seed = training.run_seed

    def counted(job: Any, seed: int, progress: Any) -> Any:
        if len(begun) == 3:
            raise PowerCut
        begun.append((job.method, seed))
        return run_seed(job, seed, progress)

    monkeypatch.setattr(training, "run_seed", counted)
    with pytest.raises(PowerCut):
        paper(project, only="table1")
    assert begun == [("kt_pfl", 0), ("local", 0), ("kt_pfl", 1)]
    kept = finished(project)
    assert len(kept) == 3
    assert not list((project.folder / "data/06_models").rglob("checkpoint.pt"))  # numbers are kept

    monkeypatch.setattr(training, "run_seed", run_seed)
    page = paper(project, only="table1+figure2+figure5")
    assert "8 of 8 cells finished. 8 runs, 8 done, 0 left." in page
    after = finished(project)
    assert {key: after[key] for key in kept} == kept
    assert len(after) == 8
    capsys.readouterr()
    paper(project, only="table1", train=False)
    assert "8 runs, 8 done, 0 left." in capsys.readouterr().out


def test_a_run_that_another_process_finished_meanwhile_is_not_trained_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = study.Planned.run, list[str]()

    def by_two(planned: study.Planned, seed: int, parent: str) -> Any:
        """Run the first, while another process runs the second."""
        begun.append(planned.cell.method)
        other: Any = {"kt_pfl": "local", "local": "kt_pfl"}[planned.cell.method]
        (beside,) = (each for each in plan[0] if each.cell.method == other)
        papers.keep(run(beside, seed, parent), project.folder / "data/07_model_output/paper")
        return run(planned, seed, parent)

    plan, made = list[Any](), study.plan
    monkeypatch.setattr(study, "plan", lambda *given: plan.append(made(*given)) or plan[0])
    monkeypatch.setattr(study.Planned, "run", by_two)
    page = paper(project, only="figure2", seeds=[0])
    assert begun == ["kt_pfl"]
    assert "2 of 2 cells finished. 2 runs, 2 done, 0 left." in page
    assert not list(project.folder.rglob("*.lock"))


def test_a_run_that_another_process_trains_comes_last(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run, begun, held = study.Planned.run, list[str](), ExitStack()
    plan = study.plan

    def planned(*given: Any) -> Any:
        made = plan(*given)
        (key,) = made[0].cell.keys.values()
        held.enter_context(alone(project.folder / "data/07_model_output/paper" / f"{key}.lock"))
        return made

    def after(planned: study.Planned, seed: int, parent: str) -> Any:
        held.close()
        begun.append(planned.cell.method)
        return run(planned, seed, parent)

    monkeypatch.setattr(study, "plan", planned)
    monkeypatch.setattr(study.Planned, "run", after)
    assert "2 runs, 2 done, 0 left." in paper(project, only="figure2", seeds=[0])
    assert begun == ["local", "kt_pfl"]


def test_a_cell_that_fails_is_told_and_the_rest_goes_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    run_seed = training.run_seed

    def broken(job: Any, seed: int, progress: Any) -> Any:
        if job.method == "kt_pfl":
            raise RuntimeError("no such luck")
        return run_seed(job, seed, progress)

    monkeypatch.setattr(training, "run_seed", broken)
    page = paper(project, "1 cell", only="figure2", seeds=[0])
    assert "no such luck" in page
    assert "1 of 2 cells finished. 2 runs, 1 done, 1 left" in page
    assert "1 cell failed" in page


def test_data_that_cannot_be_made_are_told_in_their_cells(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    parts = {"table4": {"columns": {"ρ = 0.5": {"private": {"source": "npz:none.npz"}}}}}
    page = paper(project, "2 cells", only="table4", parts=parts, train=False)
    assert "none.npz" in page
    (told,) = (message for message in caplog.messages if "none.npz" in message)
    assert told in page, "in full, and once for all methods"


def test_too_few_public_samples_for_one_column_leave_the_others_of_the_same_data(project: Project) -> None:
    columns = {"|D_r| = 3000": {"public": {"batch": 3000}}, "|D_r| = 50": {"public": {"batch": 50}}}
    page = paper(project, "2 cells", only="table4", parts={"table4": {"columns": columns}}, train=False)
    assert "public.batch is 3,000" in page
    assert "2 cells failed" in page


def test_methods_that_choose_on_validation_samples_take_them_from_their_training_samples(project: Project) -> None:
    """Others train on all that is not tested on; test samples are the same."""
    parts = {"table1": {"settings": {"partition": {"validation_share": 0}}, "methods": ["kt_pfl_likelihood", "local"]}}
    seen: dict[str, Any] = {}

    def kept(*given: Any) -> list[Any]:
        found = plan(*given)
        seen.update({each.job.method: each.job.data.partitions[0] for each in found})
        return found

    plan = study.plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "plan", kept)
        paper(project, only="table1", parts=parts, train=False, seeds=[0])
    for n, own in seen["local"].items():
        choosing = seen["kt_pfl_likelihood"][n]
        assert len(own.validation) == 0
        assert len(choosing.validation) > 0
        assert own.test.equal(choosing.test)
        assert sorted([*choosing.train.tolist(), *choosing.validation.tolist()]) == own.train.tolist()
