"""A share of a count is rounded up, but not for an error of float64."""

import pytest

from ktpfl_pipeline.core.shares import ceiling, rounded_up


@pytest.mark.parametrize(
    ("share", "count", "expected"),
    [(0.55, 100, 55), (0.07, 100, 7), (0.551, 100, 56), (0.01, 3, 1), (1.0, 7, 7), (0.0, 7, 0)],
)
def test_a_share_is_rounded_up_from_its_exact_value(share: float, count: int, expected: int) -> None:
    assert rounded_up(share, count) == expected


@pytest.mark.parametrize(("value", "expected"), [(11.000000000000002, 11), (11.00001, 12), (-0.5, 0), (3.0, 3)])
def test_a_value_is_rounded_up(value: float, expected: int) -> None:
    assert ceiling(value) == expected
