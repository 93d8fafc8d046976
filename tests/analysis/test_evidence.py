"""The data files of the paper's tables: what is read again makes the same tables as what was written."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import Provenance
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.reports import reproduction

HERE = Provenance("2026-11-25", "make paper", "abc", "", "two cores", "torch")
PARTS = {"table1": ("several architectures", "table"), "figure2": ("by round", "curves"), "figure5": ("", "bytes")}
ROUNDS = [(0.4, 0.6), (0.5, 0.7), (0.6, 0.75)]


@pytest.fixture
def cells(run: Callable[..., FinishedRun], paper_settings: dict[str, Any]) -> list[Cell]:
    """KT-pFL with both seeds in a table and two figures, with the same runs; FedMD with one seed of two."""

    def made(method: str, part: str, seeds: int) -> Cell:
        runs = [replace(run(method, seed, ROUNDS), key=f"{method}-{seed}") for seed in range(seeds)]
        keys = {seed: f"{method}-{seed}" for seed in (0, 1)}
        return Cell(part, "hetero_x", "all", method, paper_settings, {"rho": 0.5}, [0, 1], keys, runs)

    return [made("kt_pfl", part, 2) for part in PARTS] + [made("fedmd", "table1", 1)]


@pytest.fixture
def saved(cells: list[Cell], tmp_path: Path) -> Path:
    evidence.save(Evidence("Small.", PARTS, cells, ["a GPU"]), tmp_path / "light.json.gz")
    return tmp_path / "light.json.gz"


def test_what_is_read_makes_the_same_page(cells: list[Cell], saved: Path) -> None:
    read = evidence.load(saved)
    pages = [reproduction.build(each, HERE).markdown for each in (Evidence("Small.", PARTS, cells, ["a GPU"]), read)]
    assert pages[0] == pages[1]
    assert (read.scale, read.parts, read.machines) == ("Small.", PARTS, ["a GPU"])


def test_accuracies_bytes_and_seconds_are_those_of_the_runs(cells: list[Cell], saved: Path) -> None:
    (first, *_), (read, *_) = cells[0].runs, evidence.load(saved).cells[0].runs
    assert [record.accuracy for record in read.evaluated] == [record.accuracy for record in first.evaluated]
    assert [record.cohort for record in read.history] == [record.cohort for record in first.history]
    assert read.traffic == first.traffic
    assert read.seconds("round") == pytest.approx(first.seconds("round"), abs=0.05)
    assert read.final(AFTER_TRANSFER) == first.final(AFTER_TRANSFER)


def test_of_runs_that_stopped_early_the_best_validated_round_counts(cells: list[Cell], tmp_path: Path) -> None:
    runs = []
    for seed, validated in enumerate(([0.5, 0.7, 0.6], [0.5, 0.4])):
        history = [
            replace(record, accuracy={**record.accuracy, "validation": [value] * 2})
            for record, value in zip(cells[0].runs[seed].history, validated, strict=False)
        ]
        runs.append(replace(cells[0].runs[seed], history=history, patience=1))
    evidence.save(Evidence("", PARTS, [replace(cells[0], runs=runs)]), tmp_path / "stopped.json.gz")
    (read,) = evidence.load(tmp_path / "stopped.json.gz").cells
    assert read.final is not None
    assert read.final.per_seed == pytest.approx([0.6, 0.5])  # rounds 2 and 1


def test_a_run_that_two_parts_share_is_there_once(saved: Path) -> None:
    content = json.loads(gzip.decompress(saved.read_bytes()))
    assert list(content["runs"]) == ["fedmd-0", "kt_pfl-0", "kt_pfl-1"]
    assert all(not cell["runs"] for cell in content["cells"])


def test_equal_evidence_has_equal_bytes(saved: Path, tmp_path: Path) -> None:
    evidence.save(evidence.load(saved), tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == saved.read_bytes()


def test_nothing_finished_is_kept_too(cells: list[Cell], tmp_path: Path) -> None:
    evidence.save(Evidence("", PARTS, [replace(cell, runs=[]) for cell in cells]), tmp_path / "none.json.gz")
    assert all(not cell.runs for cell in evidence.load(tmp_path / "none.json.gz").cells)


def test_a_file_that_is_not_whole_is_named(saved: Path) -> None:
    whole = json.loads(gzip.decompress(saved.read_bytes()))
    lacking = [{name: part for name, part in whole.items() if name != left} for left in whole]
    texts = ["{}", *map(json.dumps, lacking), json.dumps({**whole, "runs": []})]
    for content in (saved.read_bytes()[:-9], b"", *(gzip.compress(text.encode()) for text in texts)):
        saved.write_bytes(content)
        with pytest.raises(InputError, match=r"light\.json\.gz: it does not hold the evidence.*Export it"):
            evidence.load(saved)
