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
from ktpfl_pipeline.data.sources.folder import files_in, subfolders
from ktpfl_pipeline.data.sources.limits import readable
from ktpfl_pipeline.data.sources.npz import read_header

DATA = "data.npy"
Arrays = dict[str, "np.ndarray[Any, Any]"]


def convert(folder: Path) -> Arrays:
    """Return the samples of all clients, as arrays for an `.npz` file.

    Args:
        folder: a folder that contains the folders `train` and `test` of PFLlib.

    Returns:
        ``images`` or ``features``; ``labels``; ``clients``, the number of each sample's client; and ``test``, whether
        the sample is for test. All arrays have one row per sample.

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
        if (x.shape[1:], x.dtype) != (shards[0][0].shape[1:], shards[0][0].dtype):
            raise InputError(
                f"{file} has inputs of shape {x.shape[1:]}, {x.dtype}, and {files[0][2]} of {shards[0][0].shape[1:]},"
                f" {shards[0][0].dtype}: convert clients whose data are alike."
            )
    sizes = [len(y) for _, y in shards]
    return {
        **_inputs(np.concatenate([x for x, _ in shards])),
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
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise InputError(
            f"{file} has no arrays 'x' and 'y': it is not a file of PFLlib, or it contains texts, which cannot be "
            "converted."
        )
    if not (x.dtype == np.uint8 or x.dtype.kind == "f") or not 2 <= x.ndim <= 4 or y.dtype.kind not in "iu":
        raise InputError(
            f"{file} has 'x' of {x.dtype}, shape {x.shape}, and 'y' of {y.dtype}: 'x' must be images or features, one"
            " row per sample, and 'y' class numbers."
        )
    if y.shape != (len(x),):
        raise InputError(
            f"{file} has {plural(len(x), 'input')} and labels of shape {y.shape}: the file is incomplete; generate"
            " it again."
        )
    return x, y


def _inputs(x: "np.ndarray[Any, Any]") -> Arrays:
    """Return inputs by the name of their array in our `.npz` files: images with channels last, or features."""
    if x.dtype != np.uint8:  # PFLlib writes series, such as HAR's, as (n, 9, 1, 128)
        return {"features": x.squeeze(2) if x.ndim == 4 and x.shape[2] == 1 < x.shape[3] else x}
    return {"images": x.transpose(0, 2, 3, 1) if x.ndim == 4 else x}
