"""Columns of features that float32 cannot tell apart are refused, and all others are as they were."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources import load
from ktpfl_pipeline.data.sources.parts import extent

TIMES = 1_700_000_000 + np.arange(40.0)  # float32 has two numbers there, 128 apart


def written(raw: Path, column: Any, source: str) -> str:
    """Write vectors whose second column this is, at four clients, as a source has them; return the source."""
    both = np.stack([np.arange(len(column)), column], axis=1)
    parts = np.split(both, 4)
    if source == "leaf":
        users = {f"u{n}": {"x": part.tolist(), "y": [0, 1] * (len(part) // 2)} for n, part in enumerate(parts)}
        (raw / "mine.json").write_text(json.dumps({"users": [*users], "user_data": users}))
        return "leaf:mine.json"
    if source == "npz":
        np.savez(raw / "mine.npz", features=both, labels=np.arange(len(both)) % 2)
        return "npz:mine.npz"
    for n, part in enumerate(parts):
        (raw / "mine" / f"c{n}").mkdir(parents=True)
        np.savez(raw / "mine" / f"c{n}" / "data.npz", features=part, labels=np.arange(len(part)) % 2)
    return "clients:mine"


@pytest.mark.parametrize("source", ["npz", "clients", "leaf"])
def test_each_source_names_the_column_and_what_to_subtract(source: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 1 \(from 0\) .* from 1700000000 to 1700000039.*subtract 1700000000"):
        load(written(tmp_path, TIMES, source), tmp_path)


@pytest.mark.parametrize("source", ["clients", "leaf"])
def test_a_column_that_varies_between_clients_only_is_kept(source: str, tmp_path: Path) -> None:
    column = np.repeat([0.1, 2e3, 4e5, 6e7], 10) + 1e-9 * np.arange(40)
    assert len(load(written(tmp_path, column, source), tmp_path)) == 40


@pytest.mark.parametrize(
    "values",
    [
        TIMES - TIMES[0],
        2.0**24 + np.arange(0, 80, 2),  # exact, though few steps
        0.1 * np.arange(40),
        300 + 0.1 * np.arange(40),
        np.full(40, 0.1),
        1 / np.arange(1, 41) * np.arange(1, 41) * 0.1,  # constant up to the rounding of float64
    ],
)
def test_values_that_float32_tells_apart_are_only_rounded(values: Any, tmp_path: Path) -> None:
    loaded = load(written(tmp_path, values, "npz"), tmp_path).inputs[:, 1].numpy()
    assert np.array_equal(loaded, values.astype(np.float32))


def test_a_column_of_series_is_a_channel() -> None:
    series = np.arange(24.0).reshape(2, 3, 4)
    series[:, 1] += 1_700_000_000
    found = extent(series)
    assert found.low.tolist() == [0, 1_700_000_004, 8]
    assert found.high.tolist() == [15, 1_700_000_019, 23]
    assert found.narrow.tolist() == found.changed.tolist() == [False, True, False]
