"""Runs of the paper's tables shared out among processes, here one after the other."""

from argparse import Namespace
from pathlib import Path

import paper_at_once
import pytest

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.runs import study

pytestmark = pytest.mark.usefixtures("no_tracker")
ASKED = Namespace(scale="test", only=["table1"], seeds=[0, 1], methods=["local"], columns=["two labels"])


def trained(capsys: pytest.CaptureFixture[str]) -> list[int]:
    """Return the seeds of the runs that were reported."""
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("table1, hetero_digits")]
    return [int(line.partition("local, seed ")[2].partition(":")[0]) for line in said]


def test_each_run_is_trained_by_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper, cells = paper_at_once.planned(ASKED)
    first, _ = cells[0].cell.keys.values()
    runs = tmp_path / paper_at_once.RUNS
    runs.mkdir(parents=True)
    (runs / f"{first}.taken").touch()
    paper_at_once.work(ASKED, tmp_path, 0)
    assert trained(capsys) == [1], "another process has taken seed 0"
    paper_at_once.forget(runs)
    paper_at_once.work(ASKED, tmp_path, 1)
    assert trained(capsys) == [0], "seed 1 is finished"
    for done in (2, 2):  # written again while runs go on
        assert paper_at_once.save(paper, cells, runs, tmp_path / "finished.json.gz") == done
    found = evidence.load(tmp_path / "finished.json.gz")
    assert found.machines == [here_and_now().machine], "and no GPU"
    (cell,) = found.cells
    assert [run.seed for run in cell.runs] == [0, 1]
    assert cell.settings["compute"]["dtype"] == "float32"


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(InputError, match=r"paper\.only.*table9"):
        paper_at_once.settings(Namespace(**{**vars(ASKED), "only": ["table1", "table9"]}))


def test_a_part_without_the_columns_asked_for_is_left_out() -> None:
    asked = {**vars(ASKED), "scale": "light"}
    both = Namespace(**{**asked, "only": ["table1", "table2"]})
    assert [*paper_at_once.settings(both)[0].chosen()] == ["table1"]
    with pytest.raises(SystemExit, match=r"No part of table2 .* at the scale light"):
        paper_at_once.settings(Namespace(**{**asked, "only": ["table2"]}))


def test_a_run_that_fails_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no memory")

    monkeypatch.setattr(study.Planned, "run", broken)
    (tmp_path / paper_at_once.RUNS).mkdir(parents=True)
    paper_at_once.work(ASKED, tmp_path, 0)
    out = capsys.readouterr().out
    assert "local, seed 0: failed, ValueError: no memory" in out
    assert "local, seed 1: failed, ValueError: no memory" in out
    assert not list(tmp_path.rglob("*.json"))


def test_a_run_that_is_stopped_keeps_its_checkpoint_until_it_is_finished(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def checkpoints() -> int:
        return len([*(tmp_path / paper_at_once.CHECKPOINTS).rglob("checkpoint.pt")])

    runs = tmp_path / paper_at_once.RUNS
    runs.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(paper_at_once.paper_pipeline, "keep", stop)
        paper_at_once.work(ASKED, tmp_path, 0)
    assert checkpoints() == 1
    paper_at_once.forget(runs)
    paper_at_once.work(ASKED, tmp_path, 0)
    assert checkpoints() == 0
    assert len([*runs.glob("*.json")]) == 2
