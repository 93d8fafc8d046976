"""The numbers of a report as Parquet."""

import io

import pandas as pd

TEXTS = {
    *("method", "minus", "point", "run_id", "key", "run_ids", "minus_run_ids", "owner", "architecture", "mixture"),
    *("name", "true", "predicted", "values"),
}
"""Columns of CSV files that hold text, also where it looks like a number."""


def to_parquet(csv: str) -> bytes:
    """Return a table that `to_csv` wrote as Parquet, with the types of its columns."""
    texts = {name: "string" for name in pd.read_csv(io.StringIO(csv), nrows=0).columns if name in TEXTS}
    frame = pd.read_csv(io.StringIO(csv), dtype=texts, keep_default_na=False, na_values=[""])
    return bytes(frame.to_parquet(index=False))
