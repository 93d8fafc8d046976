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
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell


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
