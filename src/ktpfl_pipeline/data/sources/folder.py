"""A folder of images of the user's own, one subfolder per class."""

import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources.arguments import no_such, path_in
from ktpfl_pipeline.data.sources.limits import MAX_FILE, MAX_PIXELS, brief, check_claim, gib

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
IMAGE_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not all of Pillow's: for EPS it starts Ghostscript


def load(argument: str, folder: Path) -> LabelledDataset:
    """Return the images of a folder that has one subfolder per class.

    Classes are numbered by the sorted names of the subfolders (as text: "10" comes before "2"), images are sorted by
    name, names that begin with a dot and files other than images are passed over. Grey images stay grey if all of
    them are; otherwise all become RGB (transparency is dropped).
    """
    path = path_in("folder", argument, folder, "folder:yourfolder")
    if not os.path.isdir(path):
        raise no_such("folder", path, folder)
    current = path
    try:
        root = path.resolve()
        places = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        if not places:
            raise InputError(f"{path} has no subfolders: put the images of each class into a subfolder of its own.")
        found = {current: _images_in(current, root) for current in places}
        paths = [file for files in found.values() for file in files]
        # Headers first: sizes and modes are known, and memory is asked for once, before any pixel is decoded.
        headers = []
        for current in paths:
            with _open(current) as image:
                headers.append((image.size, image.mode))
        mode = _common_mode(paths, headers)
        (width, height), channels = headers[0][0], len(mode)  # "L" or "RGB"
        check_claim(path, len(paths) * height * width * channels, "take fewer or smaller images")
        images = np.empty((len(paths), height, width, channels), dtype=np.uint8)
        for row, current in enumerate(paths):
            with _open(current) as image:
                images[row] = np.asarray(image.convert(mode)).reshape(height, width, channels)
    except InputError:
        raise
    except Exception as error:  # wrong bytes make Pillow's readers stumble in any way at all
        raise InputError(f"{current} cannot be read ({brief(error)}): replace or remove it.") from error
    labels = torch.repeat_interleave(torch.tensor([len(files) for files in found.values()]))
    return LabelledDataset(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels)


def _images_in(place: Path, root: Path) -> list[Path]:
    """Return the image files in `place`, and refuse what only looks like one or lies outside `root`."""
    _check_inside(place, root)
    shown = sorted(
        file for file in place.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith(".")
    )
    if not shown:
        raise InputError(f"{place} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or remove the folder.")
    for file in shown:
        _check_inside(file, root)
        if not file.is_file():  # reading a pipe would wait for ever
            raise InputError(f"{file} is no file that can be read (a folder, a pipe, a broken link): remove it.")
        if (size := file.stat().st_size) > MAX_FILE:
            raise InputError(f"{file} has {size:,} bytes, more than the {gib(MAX_FILE)} allowed: save it smaller.")
    return shown


def _check_inside(path: Path, root: Path) -> None:
    """Check that no symbolic link leads out of the folder: a folder from elsewhere must not name files of yours."""
    target = Path(os.path.realpath(path))  # unlike Path.resolve, for a link to itself too
    if path.is_symlink() and not target.is_relative_to(root):
        raise InputError(f"{path} is a symbolic link out of its folder, to {target}: put a copy in its place.")


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


def _common_mode(paths: list[Path], headers: list[tuple[tuple[int, int], str]]) -> str:
    """Return Pillow's mode for all images, ``"L"`` or ``"RGB"``; refuse different sizes and more than 8 bits."""
    for path, (size, mode) in zip(paths, headers, strict=True):
        if size != headers[0][0]:
            raise InputError(
                f"{path} has {size[0]} x {size[1]} pixels and {paths[0].name} has"
                f" {headers[0][0][0]} x {headers[0][0][1]}: resize all images to one size."
            )
        if mode.startswith(("I", "F")):
            raise InputError(f"{path} has more than 8 bits per channel (mode {mode}): save it with 8 bits.")
    return "L" if all(mode in ("1", "L", "LA") for _, mode in headers) else "RGB"
