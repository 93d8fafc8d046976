"""The tables of the pages on the paper's tables, and the kept runs from which they are drawn."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import paper_tables
import pytest
from cases import case
from studies import replaced

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER

PARTS = {"table1": ("several architectures", "table"), "figure2": ("by round", "curves"), "figure5": ("", "bytes")}


@pytest.fixture
def cells(run: Callable[..., FinishedRun], paper_settings: dict[str, Any]) -> list[Cell]:
    """KT-pFL with both seeds in a table and two figures, with the same runs; FedMD with one seed of two."""

    def made(method: str, part: str, seeds: int) -> Cell:
        runs = [replace(run(method, seed, [(0.4, 0.6)]), key=f"{method}-{seed}") for seed in range(seeds)]
        keys = {seed: f"{method}-{seed}" for seed in (0, 1)}
        return Cell(part, "hetero_x", "all", method, paper_settings, {"rho": 0.5}, [0, 1], keys, runs)

    return [made("kt_pfl", part, 2) for part in PARTS] + [made("fedmd", "table1", 1)]


def test_the_pages_show_the_kept_runs() -> None:
    for page, tables in paper_tables.pages():
        with case(page.name):
            text = page.read_text("utf-8")
            assert replaced(text, tables) == text


def test_kept_twice_and_drawn(
    run: Callable[..., FinishedRun],
    paper_settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finished, kept, pages = tmp_path / "finished.json.gz", tmp_path / "kept", tmp_path / "pages"
    runs = [replace(run("kt_pfl", seed, [(0.7, 0.8)]), key=f"key-{seed}") for seed in (0, 1)]
    cell = Cell("table1", "hetero_x", "two labels", "kt_pfl", paper_settings, {}, [0, 1], {0: "key-0", 1: "key-1"}, [])
    for done in (1, 2):
        own = evidence.Evidence("Small.", {"table1": ("networks", "table")}, [replace(cell, runs=runs[:done])])
        evidence.save(own, finished)
        paper_tables.keep("light", finished, kept)
        assert f"{done} finished run" in capsys.readouterr().out
    for _ in range(2):  # the page is replaced
        paper_tables.draw(kept, pages)
        assert capsys.readouterr().out.strip() == str(page := pages / "light" / "report.html")
    assert "75.60" in page.read_text("utf-8")
    assert "1 of 1 cell finished" in page.with_name("report.md").read_text("utf-8")


def test_seeds_of_equal_settings_are_put_together(cells: list[Cell]) -> None:
    """Whichever file is the newer one, and whichever planned the other's seed."""
    first = [replace(cell, runs=cell.runs[:1]) for cell in cells if cell.part != "figure5"]
    second = [replace(cell, seeds=[1], keys={1: cell.keys[1]}, runs=cell.runs[1:]) for cell in cells]
    other = replace(cells[0], part="table2")
    old = Evidence("", {**PARTS, "table2": ("", "table")}, [*second, other])
    for one, two in ((old, Evidence("", PARTS, first)), (Evidence("", PARTS, first), old)):
        found = paper_tables.merged(one, two)
        assert list(found.parts) == ["table1", "table2", "figure2", "figure5"], "the paper's order"
        assert sorted((cell.part, cell.method, cell.seeds, len(cell.runs)) for cell in found.cells) == [
            ("figure2", "kt_pfl", [0, 1], 2),
            ("figure5", "kt_pfl", [1], 1),
            ("table1", "fedmd", [0, 1], 1),
            ("table1", "kt_pfl", [0, 1], 2),
            ("table2", "kt_pfl", [0, 1], 2),
        ]
        assert all(list(cell.keys) == list(cell.seeds) for cell in found.cells)


def test_a_finished_cell_stays_so_while_further_seeds_are_run(cells: list[Cell]) -> None:
    whole, further = cells[0], replace(cells[0], seeds=[2, 3], keys={2: "kt_pfl-2", 3: "kt_pfl-3"}, runs=[])
    done = replace(further, runs=[replace(cells[0].runs[0], seed=2, key="kt_pfl-2")])
    for new, seeds in ((further, [0, 1]), (done, [0, 1, 2])):
        for pair in ((whole, new), (new, whole)):
            (found,) = paper_tables.merged(*(Evidence("", PARTS, [cell]) for cell in pair)).cells
            assert found.seeds == seeds == [run.seed for run in found.runs] == list(found.keys)


def test_a_further_method_stands_in_the_column_of_its_setting(cells: list[Cell]) -> None:
    """A table has a column for neighbors with one setting."""
    parts = {"table1": ("Accuracy", "table")}
    first, *_, more = cells
    old = [replace(first, experiment=name, label=label) for name in ("a", "b") for label in ("x", "y")]
    new = [replace(more, experiment=name, label=label) for name in ("a", "b") for label in ("x", "z")]
    found = paper_tables.merged(Evidence("", parts, old), Evidence("", parts, new)).cells
    assert [(cell.experiment, cell.label, cell.method) for cell in found] == [
        (name, *each)
        for name in ("a", "b")
        for each in (("x", "kt_pfl"), ("x", "fedmd"), ("y", "kt_pfl"), ("z", "fedmd"))
    ]


def test_a_newer_run_of_a_seed_replaces_the_older(cells: list[Cell]) -> None:
    again = [replace(run, key="again") for run in cells[0].runs[:1]]
    newer = replace(cells[0], keys={0: "again", 1: "kt_pfl-1"}, runs=again)
    both = paper_tables.merged(Evidence("", PARTS, cells[:1], ["one"]), Evidence("", PARTS, [newer], ["two", "one"]))
    (found,) = both.cells
    assert both.machines == ["one", "two"]
    assert [run.key for run in found.runs] == ["again", "kt_pfl-1"] == list(found.keys.values())


@pytest.mark.parametrize("change", [{"settings": {"rounds": 9}}, {"hyperparameters": {"rho": 2.0}}])
def test_of_other_settings_the_cell_with_more_runs_is_kept(cells: list[Cell], change: dict[str, Any]) -> None:
    """Of equally many, the newer."""
    other = replace(cells[0], **change)
    fewer = replace(other, runs=other.runs[:1])
    for old, new, kept in (
        (cells[0], other, other),
        (cells[0], fewer, cells[0]),
        (fewer, cells[0], cells[0]),
    ):
        assert paper_tables.merged(Evidence("", PARTS, [old]), Evidence("", PARTS, [new])).cells == [kept]


def test_losses_are_compared_on_the_seeds_that_all_have(
    run: Callable[..., FinishedRun], paper_settings: dict[str, Any]
) -> None:
    def made(method: str, reached: dict[int, float]) -> Cell:
        runs = [run(method, seed, [(value, value)]) for seed, value in reached.items()]
        return Cell("table1", "hetero_x", "all", method, paper_settings, {}, list(reached), {}, runs)

    squared, local = made("kt_pfl", {0: 0.2, 1: 0.4}), made("local", {0: 0.1, 1: 0.3, 2: 0.5})
    cells = {"T²": squared, "plain": made("kt_pfl", {1: 0.6, 2: 0.8}), "mean": made("kt_pfl", {})}
    found = paper_tables.on_common_seeds(cells, local)
    assert {loss: each.final[AFTER_TRANSFER].mean for loss, each in found.items()} == {"T²": 0.4, "plain": 0.6, "": 0.3}
    assert paper_tables.on_common_seeds({**cells, "plain": None}, local) == {}, "one loss has none to be compared with"
    assert paper_tables.on_common_seeds({**cells, "plain": made("kt_pfl", {2: 0.8})}, local) == {}, "no common seed"
