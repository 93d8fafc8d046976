"""docs/project/bad_inputs.md lists the bad inputs of the tests' tables with today's messages."""

import re

from bad_inputs import DOCUMENT, document, without_reasons


def test_it_is_up_to_date() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    assert without_reasons(page) == without_reasons(document()), "write it again: python docs/generate/bad_inputs.py"
    entries = re.findall(r"^\S.*\n    \S.*[.?]$", page, re.MULTILINE)
    assert len(entries) >= 100
    assert f"each of {len(entries)} invalid inputs" in page
