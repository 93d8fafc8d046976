"""Keeping finished runs of the paper's tables, and drawing a page from what is kept."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import paper_evidence

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell


def test_kept_twice_and_drawn(run: Callable[..., FinishedRun], paper_settings: dict[str, Any], tmp_path: Path) -> None:
    finished, kept, pages = tmp_path / "finished.json.gz", tmp_path / "kept", tmp_path / "pages"
    runs = [replace(run("kt_pfl", seed, [(0.7, 0.8)]), key=f"key-{seed}") for seed in (0, 1)]
    cell = Cell("table1", "hetero_x", "two labels", "kt_pfl", paper_settings, {}, [0, 1], {0: "key-0", 1: "key-1"}, [])
    for done in (1, 2):
        own = evidence.Evidence("Small.", {"table1": ("networks", "table")}, [replace(cell, runs=runs[:done])])
        evidence.save(own, finished)
        assert paper_evidence.keep("light", finished, kept) == done
    assert paper_evidence.draw(kept, pages) == paper_evidence.draw(kept, pages), "the page is replaced"
    (page,) = paper_evidence.draw(kept, pages)
    assert page == pages / "light" / "report.html"
    assert "75.60" in page.read_text("utf-8")
    assert "1 of 1 cell finished" in page.with_name("report.md").read_text("utf-8")
