"""An `.npz` file of the user's own: checked by its headers, then read."""

import io
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources.arguments import no_such, path_in
from ktpfl_pipeline.data.sources.limits import MAX_BYTES, MAX_CLASSES, MAX_HEADER, MAX_READ, brief, check_claim

Header = tuple[tuple[int, ...], "np.dtype[Any]"]  # shape and dtype

_SAVE_AGAIN = "save it again with numpy.savez_compressed(path, images=images, labels=labels)"


def load(argument: str, folder: Path) -> LabelledDataset:
    """Return the arrays `images` (uint8, N x H x W or N x H x W x C with C 1 or 3) and `labels` (integers, N).

    Labels are class numbers from 0 and are used as they are; a class without images is no error. Shapes and types are
    read from the headers and checked before any array is.
    """
    path = path_in("npz", argument, folder, "npz:yourfile.npz")
    if not os.path.isfile(path):  # unlike Path.is_file, False for a name that is too long or may not be looked at
        raise no_such("file", path, folder)
    try:
        with _Bounded(path) as file:
            _check_headers(path, _headers(path, file))
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                images, labels = arrays["images.npy"], arrays["labels.npy"]  # the members just checked
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): see that the file may be read.") from error
    except Exception as error:  # a zip with wrong bytes makes its readers stumble in any way at all
        raise InputError(f"{path} is not a whole .npz file ({brief(error)}): {_SAVE_AGAIN}.") from error
    if labels.min() < 0 or labels.max() >= MAX_CLASSES:
        raise InputError(
            f"the labels in {path} run from {labels.min()} to {labels.max()}: number the classes from 0 to at most"
            f" {MAX_CLASSES - 1}."
        )
    channels_last = torch.from_numpy(images if images.ndim == 4 else images[..., None])
    return LabelledDataset(channels_last.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels.astype(np.int64)))


class _Bounded(io.FileIO):
    """A file that gives `MAX_READ` bytes at a time at most: zipfile would read a directory of any length whole."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(MAX_READ + 1 if size is None or not 0 <= size <= MAX_READ else size)
        if len(data) > MAX_READ:
            raise ValueError("its directory is too long")
        return data


def _headers(path: Path, file: io.FileIO) -> dict[str, Header]:
    """Return {array: (shape, dtype)} of images and labels, as their headers claim, having read no array."""
    headers: dict[str, Header] = {}
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        for name in ("images", "labels"):
            if f"{name}.npy" not in members:
                others = ", ".join(other.removesuffix(".npy") for other in members if other.endswith(".npy"))
                raise InputError(f"{path} has no array {name!r}, only {others or 'none at all'}: {_SAVE_AGAIN}.")
            headers[name] = _header(archive, members[f"{name}.npy"])
    return headers


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Header:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        claimed_length = file.read(2 if version == (1, 0) else 4)
        if (length := int.from_bytes(claimed_length, "little")) > MAX_HEADER:
            raise ValueError(f"{member.filename} claims a header of {length:,} bytes")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(io.BytesIO(claimed_length + file.read(length)))
        claimed = math.prod(shape) * dtype.itemsize
        if claimed <= MAX_BYTES and not dtype.hasobject and member.file_size - file.tell() < claimed:
            raise ValueError(f"{member.filename} is cut short")
    return shape, dtype


def _check_headers(path: Path, headers: dict[str, Header]) -> None:
    """Check that there are images and labels, with one sentence for each thing that is wrong."""
    images, labels = (f"the array {name!r} in {path}" for name in ("images", "labels"))
    for name, (_, kind) in headers.items():
        if kind.hasobject:
            raise InputError(
                f"the array {name!r} in {path} holds Python objects, which could run code when read: save plain"
                " numbers, all images of one size."
            )
    (shape, dtype), (label_shape, label_dtype) = headers["images"], headers["labels"]
    if dtype != np.uint8:
        cast = "(images * 255).round().astype('uint8') if they lie between 0 and 1" if dtype.kind == "f" else "uint8"
        raise InputError(f"{images} is {dtype} and must be uint8, 0 to 255: save {cast}.")
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3)):
        fix = "images.transpose(0, 2, 3, 1)" if len(shape) == 4 and shape[1] in (1, 3) else "them in one of these"
        raise InputError(
            f"{images} has shape {shape} and must have N x H x W, N x H x W x 1 or N x H x W x 3: save {fix}."
        )
    if min(shape) < 1:
        raise InputError(f"{images} is empty (shape {shape}): save one image or more.")
    if label_dtype.kind not in "iu" or len(label_shape) != 1:
        raise InputError(
            f"{labels} is {label_dtype} of shape {label_shape} and must be integers of shape (N,): save one class"
            " number per image."
        )
    if label_shape[0] != shape[0]:
        counts = f"{shape[0]:,} images and {label_shape[0]:,} labels"
        raise InputError(f"{path} has {counts}: save as many labels as images.")
    as_read = math.prod(shape) + 8 * label_shape[0]  # labels become int64
    check_claim(path, as_read, f"save fewer or smaller images than {shape}")
