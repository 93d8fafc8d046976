"""The tables of result pages that are drawn from kept runs."""

from pathlib import Path

import pages
import pytest
from studies import read, replaced


@pytest.mark.parametrize("name", [name for name in pages.TABLES if read(pages.kept(name))])
def test_the_page_shows_the_kept_rows(name: str) -> None:
    page, above, draw = pages.TABLES[name]
    text = (pages.PAGES / page).read_text("utf-8")
    assert replaced(text, {above: draw(read(pages.kept(name)))}) == text


def test_new_runs_replace_runs_of_the_same_setting_method_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "KEPT", tmp_path)
    row = dict.fromkeys(pages.COLUMNS, "1")
    found = {"a": [row], "b": [{**row, "accuracy": "0"}], "c": [{**row, "seed": "2"}]}
    monkeypatch.setattr(pages, "runs_in", lambda file: [("1", file.name)])
    monkeypatch.setattr(pages, "rows_of", lambda setting, name: found[name])
    pages.keep("page", "a")
    pages.keep("page", "b", "c")
    assert read(pages.kept("page")) == [*found["b"], *found["c"]]
