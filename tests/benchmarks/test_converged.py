"""The tables of the page on converged clients."""

from pathlib import Path

import converged
import pytest


def test_the_page_shows_the_kept_rows() -> None:
    page = converged.PAGE.read_text("utf-8")
    drawn = converged.tables(converged.read(converged.KEPT))
    assert len(drawn) == len(converged.DATA) * len(converged.PARTITIONS) + 2
    assert [heading for heading, text in drawn.items() if text not in page] == []


def test_a_heading_without_a_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Converged clients\n\n## Convergence\n\nNothing.\n", "utf-8")
    monkeypatch.setattr(converged, "PAGE", page)
    with pytest.raises(SystemExit, match=r"0 tables below the heading .KT-pFL and the paper's baselines"):
        converged.table()
