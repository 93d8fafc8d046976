"""The order of class names: as numbers where all are numbers, otherwise as text."""

import pytest

from ktpfl_pipeline.data.sources.parts import in_order, numbered


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["10", "9", "-1", "1e1", "2.5"], ["-1", "2.5", "9", "10", "1e1"]),
        (["18_25", "9_12", "100_120"], ["100_120", "18_25", "9_12"]),
        (["10", "9", "inf"], ["10", "9", "inf"]),
        (["10", "9", "other"], ["10", "9", "other"]),
        ([10, 9, 9], ["9", "10"]),
    ],
)
def test_names_are_ordered_as_numbers_only_where_all_are_numbers(names: list[object], order: list[str]) -> None:
    assert in_order(names) == order


def test_samples_are_numbered_in_the_order_of_the_names() -> None:
    names, labels = numbered(["10", "9", "10", "200"])
    assert names == ["9", "10", "200"]
    assert labels.tolist() == [1, 0, 1, 2]
