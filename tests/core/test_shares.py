"""A share of a count is rounded up, but not for an error of float64."""

import pytest

from ktpfl_pipeline.core.shares import rounded_up


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [(0.55, 100, 55), (0.07, 100, 7), (0.551, 100, 56), (0.01, 3, 1), (1.0, 7, 7), (0.0, 7, 0)],
)
def test_a_share_is_rounded_up_from_its_exact_value(share: float, count: int, expected: int) -> None:
    assert rounded_up(share, count) == expected
