"""The tables of the pages on the paper's tables."""

import paper_tables
import pytest
from page_tables import replaced


@pytest.mark.parametrize(("page", "tables"), paper_tables.pages(), ids=lambda each: getattr(each, "name", ""))
def test_the_page_shows_the_kept_runs(page: paper_tables.Path, tables: paper_tables.Tables) -> None:
    text = page.read_text("utf-8")
    assert replaced(text, tables) == text
