"""docs/project/what_leaves.md shows the traffic that the methods report today."""

import pytest
import what_leaves

from ktpfl_pipeline.core.errors import COVERED_METHODS
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods import METHODS


def test_it_is_up_to_date() -> None:
    page = what_leaves.DOCUMENT.read_text(encoding="utf-8")
    assert what_leaves.table() in page, "write it again: python docs/generate/what_leaves.py"
    assert all(f"\n| `{name}` | " in page for name in METHODS)


def test_messages_name_its_column_of_methods_that_private_training_allows() -> None:
    assert COVERED_METHODS.endswith(f"docs/project/{what_leaves.DOCUMENT.name}")
    assert "| ε |" in what_leaves.table()


def test_bytes_that_no_formula_gives_are_refused() -> None:
    fed = what_leaves.toy.federation()
    right, wrong = Traffic(predictions_up=4 * 13 * 3), Traffic(predictions_up=4 * 13 * 3 + 1)
    assert what_leaves.formula_of("predictions_up", {3: right, 7: right}, fed) == "4BK"
    with pytest.raises(AssertionError, match="no formula fit"):
        what_leaves.formula_of("predictions_up", {3: right, 7: wrong}, fed)
