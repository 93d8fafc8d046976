"""Photographs of the user's own: folders of image files, one subfolder per class or without labels."""

import logging
import math
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import class_names
from ktpfl_pipeline.data.sources.arguments import no_such, path_in
from ktpfl_pipeline.data.sources.limits import MAX_FILE, MAX_PIXELS, brief, check_claim, gib, readable

logger = logging.getLogger(__name__)
Size = tuple[int, int]  # height and width

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
IMAGE_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not all of Pillow's: for EPS it starts Ghostscript


def load(argument: str, folder: Path, size: Size | None = None) -> LabelledDataset:
    """Return the images of a folder that has one subfolder per class.

    Classes are numbered by the sorted names of the subfolders (as text: "10" comes before "2"), images are sorted by
    name, names that begin with a dot are passed over, and files other than images with a warning. For colours and
    `size` see `photographs`.
    """
    path = find("folder", argument, folder)
    classes = by_class(path, path)
    labels = torch.repeat_interleave(torch.tensor([len(files) for files in classes.values()]))
    images = photographs(path, [file for files in classes.values() for file in files], size)
    return LabelledDataset(images, labels, class_names=class_names(classes, labels, path))


def unlabelled(argument: str, folder: Path, size: Size | None = None) -> Tensor:
    """Return the images in a folder and in its subfolders, (N, C, H, W) uint8."""
    path = find("folder", argument, folder)
    files = [file for place in [path, *subfolders(path, path)] for file in files_in(place, path)]
    if not files:
        raise InputError(f"{path} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or correct the path.")
    return photographs(path, files, size)


def find(name: str, argument: str, folder: Path) -> Path:
    """Return the folder in the argument of the source `name`."""
    path = path_in(name, argument, folder, f"{name}:yourfolder")
    if not os.path.isdir(path):
        raise no_such("folder", path, folder)
    return path


def by_class(place: Path, root: Path) -> dict[str, list[Path]]:
    """Return the image files in each subfolder of `place` by its name; symbolic links must stay within `root`.

    Raises:
        InputError: if there is no subfolder, or one without images; it names the other kind of folder where it is one.
    """
    found = {entry.name: files_in(entry, root) for entry in subfolders(place, root)}
    if not found:
        other = f", or write folder: for clients: if {root} has a folder per class" if files_in(place, root) else ""
        raise InputError(
            f"{place} has no subfolders: put the images of each class into a subfolder of its own"
            f"{other if place != root else ''}."
        )
    for name, files in found.items():
        if not files:
            holds = subfolders(place / name, root) or files_in(place / name, root, (".npz",))
            other = (
                f", or write clients: for folder: if {root} has a folder per client" if holds and place == root else ""
            )
            raise InputError(
                f"{place / name} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or remove it{other}."
            )
    return found


def subfolders(place: Path, root: Path) -> list[Path]:
    """Return the folders in `place`, sorted; names that begin with a dot are passed over."""
    with readable(place):
        found = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for entry in found:
        _check_inside(entry, root)
    return found


def files_in(place: Path, root: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """Return the files in `place` with these suffixes, sorted; refuse what only looks like one or is outside `root`."""
    with readable(place):
        files = (file for file in place.iterdir() if file.suffix.lower() in suffixes)
        shown = sorted(file for file in files if not file.name.startswith("."))
    for file in shown:
        check_file(file, root)
    return shown


def check_file(file: Path, root: Path) -> None:
    """Check that `file` is one that can be read, is not too large, and lies within `root`."""
    _check_inside(file, root)
    if not file.is_file():  # reading a pipe would wait for ever
        raise InputError(f"{file} is no file that can be read (a folder, a pipe, a broken link): remove it.")


def photographs(where: Path, files: list[Path], size: Size | None = None) -> Tensor:
    """Return image files as (N, C, H, W) uint8.

    Grey images stay grey if all of them are; otherwise all become RGB (transparency is dropped). Headers come first:
    sizes and modes are known, and memory is asked for once, before any pixel is decoded.

    Args:
        where: the folder that they are in, for messages.
        files: one or more.
        size: what each is brought to when it is read, so that no more than one is in memory at its own size: by
            Pillow's bilinear filter, which averages when it shrinks. None: they stay as they are, all of one size.

    Raises:
        InputError: if one cannot be read, or has another size where `size` is None.
    """
    _warn_of_skipped(where, files)
    headers = [_header(file) for file in files]
    mode = _common_mode(files, headers, size)
    (width, height), channels = size[::-1] if size else headers[0][0], len(mode)  # "L" or "RGB"
    check_claim(where, len(files) * height * width * channels, "take fewer or smaller images")
    if others := sum(found != (width, height) for found, _ in headers):
        logger.info(f"{others:,} of the {len(files):,} images in {where} are brought to {height} × {width}.")
    images = np.empty((len(files), height, width, channels), dtype=np.uint8)
    for row, file in enumerate(files):
        with readable(file), _open(file) as image:
            images[row] = np.asarray(_sized(image, mode, (width, height))).reshape(height, width, channels)
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def _warn_of_skipped(where: Path, files: list[Path]) -> None:
    """Warn of the files beside the images that are none by their names, such as a `.gif`."""
    skipped: Counter[str] = Counter()
    for place in {file.parent for file in files}:
        with readable(place):
            beside = [file for file in place.iterdir() if not file.name.startswith(".") and file.is_file()]
        skipped.update(file.suffix.lower() for file in beside if file.suffix.lower() not in IMAGE_SUFFIXES)
    if skipped:
        kinds = [f"{number:,} {suffix or 'without an ending'}" for suffix, number in sorted(skipped.items())]
        logger.warning(
            f"{where}: files beside the images are skipped, {', '.join(kinds)}; images are {', '.join(IMAGE_SUFFIXES)}."
        )


def _sized(image: Any, mode: str, size: tuple[int, int]) -> Any:
    """Return Pillow's image in a mode and a size, (width, height)."""
    from PIL import Image

    if image.size == size:
        return image.convert(mode)
    image.draft(mode, (2 * size[0], 2 * size[1]))  # a JPEG is decoded at a half, a quarter or an eighth where that does
    return image.convert(mode).resize(size, Image.Resampling.BILINEAR)


def _check_inside(path: Path, root: Path) -> None:
    """Check that no symbolic link leads out of the folder: a folder from elsewhere must not name files of yours."""
    target = Path(os.path.realpath(path))  # unlike Path.resolve, for a link to itself too
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(root)):
        raise InputError(f"{path} is a symbolic link out of its folder, to {target}: put a copy in its place.")


def _header(file: Path) -> tuple[tuple[int, int], str]:
    """Return the size, (width, height), and the mode of an image file."""
    if (length := file.stat().st_size) > MAX_FILE:
        raise InputError(f"{file} has {length:,} bytes, more than the {gib(MAX_FILE)} allowed: save it smaller.")
    with readable(file), _open(file) as image:
        return image.size, image.mode


def _open(path: Path) -> Any:
    """Return Pillow's image with its header read, and no pixel yet."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(path, formats=IMAGE_FORMATS)
        if (pixels := math.prod(image.size)) > MAX_PIXELS:
            image.close()
            raise Image.DecompressionBombError(f"{pixels} pixels")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(
            f"{path} has more than the {MAX_PIXELS:,} pixels allowed ({brief(error)}): make it smaller."
        ) from error
    return image


def _common_mode(files: list[Path], headers: list[tuple[tuple[int, int], str]], wanted: Size | None) -> str:
    """Return Pillow's mode for all images, ``"L"`` or ``"RGB"``; refuse different sizes and more than 8 bits."""
    for file, (size, mode) in zip(files, headers, strict=True):
        if wanted is None and size != headers[0][0]:
            raise InputError(
                f"{file} has {size[0]} x {size[1]} pixels and {files[0].name} has {headers[0][0][0]} x"
                f" {headers[0][0][1]}: give the experiment's image a size, to which all are brought, or resize them."
            )
        if mode.startswith(("I", "F")):
            raise InputError(f"{file} has more than 8 bits per channel (mode {mode}): save it with 8 bits.")
    return "L" if all(mode in ("1", "L", "LA") for _, mode in headers) else "RGB"
