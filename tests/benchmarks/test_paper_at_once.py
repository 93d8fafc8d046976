"""Runs of the paper's tables shared out among processes, here one after the other."""

from argparse import Namespace
from pathlib import Path

import paper_at_once
import pytest

from ktpfl_pipeline.analysis import evidence

ASKED = Namespace(scale="test", only=["table1"], seeds=[0, 1], methods=["local"], columns=["two labels"])


def test_a_run_that_is_taken_is_left_to_its_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first process finds seed 0 taken and trains seed 1; the second finds nothing left."""
    paper, cells = paper_at_once.planned(ASKED)
    first, _ = cells[0].cell.keys.values()
    (tmp_path / f"{first}.taken").touch()
    for number in (0, 1):
        paper_at_once.work(ASKED, tmp_path, number)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("table1")]
    assert len(said) == 1
    assert said[0].startswith("table1, hetero_digits, two labels, local, seed 1: ")
    for done in (1, 1):  # written again while runs go on
        assert paper_at_once.save(paper, cells, tmp_path, tmp_path / "finished.json.gz") == done
    (cell,) = evidence.load(tmp_path / "finished.json.gz").cells
    assert [run.seed for run in cell.runs] == [1]
    assert cell.settings["compute"]["dtype"] == "float32"
