"""The numbers of a report as CSV and Parquet."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.frames import frame

TEXTS = {
    *("method", "minus", "point", "run_id", "key", "run_ids", "minus_run_ids", "owner", "architecture", "mixture"),
    *("name", "true", "predicted", "values"),
}
"""The columns of CSV files that contain text, even if the text looks like a number."""


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with one line per row and unrounded numbers. Unknown values are empty."""
    return str(frame(rows).to_csv(index=False))


def to_parquet(csv: str) -> bytes:
    """Return a table that `to_csv` wrote as Parquet, with the types of its columns."""
    import pandas as pd

    texts = {name: "string" for name in pd.read_csv(io.StringIO(csv), nrows=0).columns if name in TEXTS}
    frame = pd.read_csv(io.StringIO(csv), dtype=texts, keep_default_na=False, na_values=[""])
    return bytes(frame.to_parquet(index=False))


def data_files(comparison: Comparison) -> dict[str, str]:
    """Return the report's unrounded numbers as CSV by file name."""
    return {f"{name}.csv": str(frame.to_csv(index=False)) for name, frame in comparison.frames.items()}
