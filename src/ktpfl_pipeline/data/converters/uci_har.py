"""UCI HAR's folder: inertial signals of people with a phone at the waist (Anguita et al., ESANN 2013).

Windows of 128 steps at 50 Hz, of nine signals; windows of one person overlap by half.
"""

from pathlib import Path
from typing import Any

import numpy as np

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources.folder import check_file
from ktpfl_pipeline.data.sources.limits import MAX_FILE, gib, readable

SIGNALS = [f"{signal}_{axis}" for signal in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]


def convert(folder: Path, public: int = 0) -> dict[str, "np.ndarray[Any, Any]"]:
    """Return windows (N, 9, 128) float32, activities from 0 as labels and people as clients, both parts together.

    Args:
        folder: the unpacked one, ``UCI HAR Dataset``. Its training and test part are other people, not a split of each.
        public: of so many people, those with the highest numbers, the windows become `public`, without labels.

    Raises:
        InputError: if a file is missing, or does not go with the others; too many are to be public.
    """
    parts = [_part(folder, part) for part in ("train", "test")]
    features, labels, people = (np.concatenate([part[name] for part in parts]) for name in range(3))
    everybody = np.unique(people)
    if not 0 <= public < len(everybody) - 1:
        raise InputError(f"{public} of {len(everybody)} people cannot be public: leave two or more as clients.")
    open_ = np.isin(people, everybody[len(everybody) - public :])
    arrays = {"features": features[~open_], "labels": labels[~open_], "clients": people[~open_]}
    return {**arrays, "public": features[open_]} if public else arrays


def _part(folder: Path, part: str) -> tuple["np.ndarray[Any, Any]", ...]:
    """Return windows, labels and people of one part."""
    names = [f"Inertial Signals/{signal}_{part}.txt" for signal in SIGNALS]
    tables = [_table(folder, folder / part / name) for name in (*names, f"y_{part}.txt", f"subject_{part}.txt")]
    for name, table in zip(names, tables, strict=False):
        if table.shape != tables[0].shape:
            raise InputError(
                f"{folder / part / name} has {table.shape} values and {names[0]} has {tables[0].shape}: fetch it anew."
            )
    rows = len(tables[0])
    for name, column in zip(("y", "subject"), tables[-2:], strict=True):
        if not rows or column.shape != (rows, 1) or column.min() < 1 or (column % 1).any():
            raise InputError(
                f"{folder / part}/{name}_{part}.txt must have {rows:,} whole numbers from 1: fetch it anew."
            )
    numbers = [column[:, 0].astype(np.int64) for column in tables[-2:]]
    return np.stack(tables[:-2], axis=1), numbers[0] - 1, numbers[1]


def _table(folder: Path, file: Path) -> "np.ndarray[Any, Any]":
    if not file.exists():
        raise InputError(f"there is no file {file}: name the unpacked folder 'UCI HAR Dataset'.")
    check_file(file, folder)
    if (size := file.stat().st_size) > MAX_FILE:
        raise InputError(f"{file} has {size:,} bytes, more than the {gib(MAX_FILE)} allowed: fetch it anew.")
    with readable(file):
        return np.loadtxt(file, dtype=np.float32, ndmin=2)
