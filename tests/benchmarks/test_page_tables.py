"""Tables in Markdown, and their place in a page."""

from pathlib import Path

import page_tables
import pytest

PAGE = "# Page\n\nOne:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nTwo:\n\n| c |\n| --- |\n\n## Last\n\nText.\n"


def test_a_table_is_drawn_with_an_empty_cell() -> None:
    assert page_tables.drawn([["a", "b", "c"], ["x", "", ""]]) == "| a | b | c |\n| --- | --- | --- |\n| x | | |"


def test_pfeddf_fine_tunes_before_every_evaluation() -> None:
    assert page_tables.named("pfeddf") == "pFedDF ‡"
    assert page_tables.named("local_5x") == "Local-only (5 × work)"


def test_a_table_is_replaced_below_its_text(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(PAGE, "utf-8")
    page_tables.write(file, {"Two:": "| d |", "One:": "| e |"})
    assert file.read_text("utf-8") == "# Page\n\nOne:\n\n| e |\n\nTwo:\n\n| d |\n\n## Last\n\nText.\n"


@pytest.mark.parametrize(
    ("above", "message"),
    [
        ("## Last", "The page has no table below '## Last'"),
        ("Three:", "The page has the text 'Three:' 0 times"),
        ("| --- |", "2 times; it needs it once"),
    ],
)
def test_a_text_without_a_place_for_a_table_is_named(above: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message.replace("|", r"\|")):
        page_tables.replaced(PAGE, {above: "| d |"})
