"""Converter of PFLlib's datasets: `train/0.npz`, `test/0.npz`, `train/1.npz`, ... (Zhang et al., JMLR 2025).

Each file has one object array, `data`, with the dict ``{"x": inputs, "y": labels}``. NumPy would read it with pickle,
which can run code; `pickles` reads it safely. HtFLlib and FL-IoT write the same format.
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.machine.resources import check_claim
from ktpfl_pipeline.data.converters import pickles
from ktpfl_pipeline.data.sources.files import files_in, readable, subfolders
from ktpfl_pipeline.data.sources.npz import read_header
from ktpfl_pipeline.data.sources.parts import class_numbers

DATA = "data.npy"
FILLER = np.iinfo(np.int64).min  # stands for the padding of tokens, whose id is known when all files are read
Arrays = dict[str, "np.ndarray[Any, Any]"]


def convert(folder: Path) -> Arrays:
    """Return the samples of all clients, as arrays for an `.npz` file.

    Args:
        folder: a folder that contains the folders `train` and `test` of PFLlib.

    Returns:
        ``images``, ``features`` or ``tokens``; ``labels``; ``clients``, the number of each sample's client; and
        ``test``, whether the sample is for test. All have one row per sample. Tokens of different lengths have
        ``padding`` too.

    Raises:
        InputError: if files are missing or do not have the format of PFLlib.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name the one that has PFLlib's train and test.")
    parts = {
        place.name: _shards(place, folder) for place in subfolders(folder, folder) if place.name in ("train", "test")
    }
    if len(parts) < 2 or not parts["train"] or parts["train"].keys() != parts["test"].keys():
        raise InputError(
            f"{folder} must have folders train and test with the same files 0.npz, 1.npz, ...: name the folder of a"
            " dataset that PFLlib made."
        )
    files = [(n, part == "test", parts[part][n]) for n in sorted(parts["train"]) for part in ("train", "test")]
    check_claim(folder, 2 * sum(_size(file) for _, _, file in files), "take fewer clients")
    shards = [_shard(file) for _, _, file in files]
    for (_, _, file), (x, _) in zip(files, shards, strict=True):
        alike = x.shape[1:] == shards[0][0].shape[1:] or x.dtype.kind == "i"  # tokens are filled up
        if not alike or x.dtype != shards[0][0].dtype:
            raise InputError(
                f"{file} has inputs of shape {x.shape[1:]}, {x.dtype}, and {files[0][2]} of {shards[0][0].shape[1:]},"
                f" {shards[0][0].dtype}: convert clients whose data are alike."
            )
    sizes = [len(y) for _, y in shards]
    return {
        **_inputs([x for x, _ in shards]),
        "labels": np.concatenate([y for _, y in shards]),
        "clients": np.repeat([n for n, _, _ in files], sizes),
        "test": np.repeat([test for _, test, _ in files], sizes),
    }


def _shards(place: Path, root: Path) -> dict[int, Path]:
    """Return the `.npz` files of `train` or `test` by the number of the client."""
    return {int(file.stem): file for file in files_in(place, root, (".npz",)) if file.stem.isdecimal()}


def _size(file: Path) -> int:
    with readable(file), zipfile.ZipFile(file) as archive:
        return archive.getinfo(DATA).file_size


def _shard(file: Path) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """Return the inputs, (n, ...), and labels, (n,), of one file. The caller has checked its size."""
    with readable(file), zipfile.ZipFile(file) as archive, archive.open(DATA) as content:
        if not read_header(content)[1].hasobject:
            raise ValueError("its array 'data' is not the dict of a client")
        data = pickles.read(content.read(archive.getinfo(DATA).file_size))
    x, y = (data.get(name) if isinstance(data, dict) else None for name in "xy")
    if not all(isinstance(each, list | np.ndarray) and len(each) for each in (x, y)):
        raise InputError(f"{file} has no arrays 'x' and 'y', or lists: it is not a file of PFLlib.")
    with readable(file, "has an 'x' or 'y' that is not of numbers"):
        inputs, labels = _numbers(x, file), np.asarray(y, dtype=np.float64 if isinstance(y, list) else None)
    if not (inputs.dtype == np.uint8 or inputs.dtype.kind in "fi") or not 2 <= inputs.ndim <= 4:
        raise InputError(
            f"{file} has 'x' of {inputs.dtype}, shape {inputs.shape}: it must be images, features or tokens, one row"
            " per sample."
        )
    if inputs.dtype.kind == "i" and inputs.ndim != 2:
        raise InputError(f"{file} has integers 'x' of shape {inputs.shape}, and tokens have (n, length).")
    if labels.shape != (len(inputs),):
        raise InputError(
            f"{file} has {plural(len(inputs), 'input')} and labels of shape {labels.shape}: the file is incomplete;"
            " generate it again."
        )
    return inputs, class_numbers(labels, str(file))


def _numbers(x: Any, file: Path) -> "np.ndarray[Any, Any]":
    """Return inputs as an array, (n, ...): lists of numbers as features or tokens, pairs of ids and length as tokens.

    Tokens of different lengths are filled up with `FILLER`.
    """
    if isinstance(x, np.ndarray):
        return x
    rows = [pickles.plain(row) for row in x]
    if any(isinstance(row, str) for row in rows):
        raise InputError(f"{file} has texts as 'x': write them to a table, which the source text:<file> reads.")
    if all(len(row) == 2 and not np.isscalar(row[0]) for row in rows):  # as for AG News
        rows = [list(pickles.plain(ids))[:length] for ids, length in rows]
    if len({len(row) for row in rows}) == 1:
        return np.array(rows)
    if np.concatenate([np.asarray(row) for row in rows]).dtype.kind != "i":
        raise ValueError("its rows have several lengths and are not ids of tokens")
    check_claim(file, 8 * len(rows) * (longest := max(map(len, rows))), "cut long texts")
    ids = np.full((len(rows), longest), FILLER)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = row
    return ids


def _inputs(shards: list["np.ndarray[Any, Any]"]) -> Arrays:
    """Return inputs by the name of their array in our `.npz` files: images with channels last, features, or tokens."""
    if shards[0].dtype.kind == "i":
        length = max(each.shape[1] for each in shards)
        filled = [np.pad(x, ((0, 0), (0, length - x.shape[1])), constant_values=FILLER) for x in shards]
        ids = np.concatenate(filled)
        padding = ids.max() + 1
        padded = (ids == FILLER).any()
        return {"tokens": np.where(ids == FILLER, padding, ids), **({"padding": padding} if padded else {})}
    x = np.concatenate(shards)
    if x.dtype != np.uint8:  # PFLlib writes series, such as HAR's, as (n, 9, 1, 128)
        return {"features": x.squeeze(2) if x.ndim == 4 and x.shape[2] == 1 < x.shape[3] else x}
    return {"images": x.transpose(0, 2, 3, 1) if x.ndim == 4 else x}
