"""Reading of image files as tensors of one size with 8 bits per channel. One error lists all unreadable files."""

import contextlib
import logging
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError, listed, plural
from ktpfl_pipeline.core.machine.resources import check_claim, gib
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources.files import IMAGE_SUFFIXES, MAX_FILE, MAX_PIXELS, brief, readable

logger = logging.getLogger(__name__)
Size = tuple[int, int]  # height and width

IMAGE_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not EPS: Pillow would start Ghostscript
LYING = (5, 6, 7, 8)  # EXIF orientations in which width and height are swapped
ORIENTATION = 0x0112  # EXIF's tag
BITS_PER_SAMPLE, SUBFILE_TYPE, PHOTOMETRIC, WHITE_IS_ZERO = 258, 254, 262, 0  # TIFF's tags, and a value
PUBLIC = "public"
"""The name of the folder, or of the `.npz` file, with public inputs next to the clients' folders."""


class Reading(NamedTuple):
    """Settings for reading image files and texts.

    Attributes:
        size: the height and width to which each image is resized; None: images are not resized and must have one size.
        window: for grayscale images with more than 8 bits, the values that are mapped to 0 and 255. Values between them
            are scaled linearly, and values outside are clipped. None: such images are an error, because their range is
            unknown.
        skip: whether unreadable files are left out with a warning. Otherwise they are an error.
        text: how texts are converted to tokens.
        known: the vocabulary of the private texts, which public texts use; None for private texts.
        columns: the names of the private features, which other features must have; None if they are unknown.
    """

    size: Size | None = None
    window: tuple[float, float] | None = None
    skip: bool = False
    text: Text = Text()
    known: Vocabulary | None = None
    columns: tuple[str, ...] | None = None

    @classmethod
    def of(cls, image: Any, text: Text) -> "Reading":
        """Return how files are read with an experiment's settings `image`, which may be None, and `text`."""
        if image is None:
            return cls(text=text)
        window = None if image.window is None else (image.window[0], image.window[1])
        return cls(image.shape[1:], window, image.unreadable == "skip", text)

    def of_public(self, private: LabeledDataset) -> "Reading":
        """Return the settings for public samples: texts use the vocabulary and the length of the private texts."""
        if private.vocabulary is None:
            return self._replace(columns=private.columns)
        return self._replace(known=private.vocabulary, text=replace(self.text, length=private.shape[0]))


AS_THEY_ARE = Reading()


class _Header(NamedTuple):
    """Facts of an image file before its pixels are decoded.

    Attributes:
        size: the width and height of the image after rotation by its EXIF orientation.
        mode: Pillow's mode of the decoded pixels.
        bits: bits per channel in the file. If there are several channels, Pillow decodes only the highest 8.
        scale: the factor from a gray value that Pillow decodes to the value in the file.
        pages: whether the file has further pages or frames besides the first, which is read.
    """

    size: tuple[int, int]
    mode: str
    bits: int
    scale: float
    pages: bool

    @property
    def deep(self) -> bool:
        """Whether the image has one channel that is decoded with more than 8 bits."""
        return self.mode.startswith(("I", "F"))


class _Unreadable:
    """The files that could not be read, with their errors, in the order of reading."""

    def __init__(self) -> None:
        self.errors: dict[Path, InputError] = {}

    @contextlib.contextmanager
    def collected(self, file: Path) -> Iterator[None]:
        """Store the error of reading `file` as an InputError instead of raising it."""
        try:
            with readable(file, fix="replace or remove it, or set image.unreadable to skip"):
                yield
        except InputError as error:
            self.errors[file] = error

    def settle(self, where: Path, of: int, skip: bool) -> None:
        """Raise one InputError for all stored errors; with `skip`, log a warning unless all `of` files failed."""
        if not self.errors:
            return
        if skip and len(self.errors) < of:
            warn(
                "Unreadable files",
                f"{where}: reading skips {len(self.errors):,} of {plural(of, 'image')}, which cannot be read: {self}. "
                "Replace them.",
            )
        elif len(self.errors) == 1:
            raise next(iter(self.errors.values()))
        else:
            raise InputError(
                f"{len(self.errors):,} of the {of:,} images in {where} cannot be read: {self}. Replace or remove them,"
                " or set image.unreadable to skip."
            )

    def __str__(self) -> str:
        return listed([*self.errors])


def photographs(
    where: Path, files: list[Path], reading: Reading = AS_THEY_ARE, listed: bool = False
) -> tuple[Tensor, Tensor]:
    """Read image files, rotated by their EXIF orientation.

    If all images are grayscale, they have one channel. Otherwise all are converted to RGB. Transparent pixels are laid
    over white. Of a file with several pages or frames, the first is read. Warnings count both. All headers are read
    before pixels are decoded, so that memory is allocated once. At most one image is in memory at its original size.
    Images are resized with Pillow's bilinear filter, which averages when it shrinks.

    Args:
        where: the folder or table of the files, for messages.
        files: M image files.
        reading: the settings for reading.
        listed: whether a table lists the files. If not, other files in their folders cause a warning.

    Returns:
        The images that could be read, (M', C, H, W) uint8, and whether each file was read, (M,) bool.

    Raises:
        InputError: if files cannot be read, unless `reading.skip` is set; if images have several sizes and
            `reading.size` is None; if images have more than 8 bits per channel, and `reading.window` is None or they
            have several channels.
    """
    if not listed:
        warn_of_skipped(where, files)
    lost = _Unreadable()
    headers: dict[Path, _Header] = {}
    for file in files:
        with lost.collected(file):
            headers[file] = _header(file)
    lost.settle(where, len(files), reading.skip)
    if several := [file for file, header in headers.items() if header.pages]:
        warn(
            "Further pages",
            f"{where}: {len(several):,} of {plural(len(headers), 'image')} have several pages or frames, such as "
            f"{several[0]}, and only the first is read: save each page that matters as a file of its own.",
        )
    mode = _common_mode(headers, reading)
    (width, height), channels = reading.size[::-1] if reading.size else next(iter(headers.values())).size, len(mode)
    check_claim(where, len(headers) * height * width * channels, "take fewer or smaller images")
    if others := sum(header.size != (width, height) for header in headers.values()):
        logger.info(
            f"Resizing to {height} × {width} changes {others:,} of the {plural(len(files), 'image')} in {where}."
        )
    images = np.empty((len(headers), height, width, channels), dtype=np.uint8)
    late, row, clear = _Unreadable(), 0, list[Path]()
    for file, header in headers.items():
        with late.collected(file), _open(file) as image:
            eight, transparent = _on_white(_eight_bits(image, header, reading))
            images[row] = np.asarray(_sized(eight, mode, (width, height))).reshape(height, width, channels)
            clear += [file] * transparent
            row += 1
    late.settle(where, len(headers), reading.skip)
    if clear:
        warn(
            "Transparent images",
            f"{where}: {len(clear):,} of {plural(row, 'image')} have transparent pixels, which are laid over white, "
            f"such as {clear[0]}: save them without transparency to choose another background.",
        )
    kept = torch.tensor([file in headers and file not in late.errors for file in files])
    return torch.from_numpy(images[:row]).permute(0, 3, 1, 2).contiguous(), kept


def warn_of_skipped(where: Path, files: list[Path]) -> None:
    """Warn of files that are not read: others next to the read `files`, and images and arrays anywhere in `where`.

    Names that begin with a dot are not counted, nor is the public part next to clients' folders.
    """
    beside, read, skipped = {file.parent for file in files}, {*files}, Counter[str]()
    for place, below, names in os.walk(where):
        here = Path(place)
        below[:] = [name for name in below if not name.startswith(".") and here / name != where / PUBLIC]
        for file in (here / name for name in names if not name.startswith(".")):
            kind = file.suffix.lower()
            inputs = kind in (*IMAGE_SUFFIXES, ".npz") and file != where / f"{PUBLIC}.npz"
            if file not in read and (inputs or here in beside) and file.is_file():
                skipped[kind + " outside of the folders that are read" * (inputs and here not in beside)] += 1
    if skipped:
        kinds = [f"{number:,} {kind or 'without an ending'}" for kind, number in sorted(skipped.items())]
        warn(
            "Skipped files",
            f"{where}: other files are skipped, {', '.join(kinds)}; images are {', '.join(IMAGE_SUFFIXES)}. Convert or "
            "move those that belong to the samples.",
        )


def _on_white(image: Any) -> tuple[Any, bool]:
    """Return an image with 8 bits per channel laid over white, and whether any of its pixels is transparent."""
    from PIL import Image

    if not image.has_transparency_data:
        return image, False
    layer = image.convert("RGBA")
    if layer.getchannel("A").getextrema()[0] == 255:
        return image, False
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer), True


def _eight_bits(image: Any, header: _Header, reading: Reading) -> Any:
    """Return a Pillow image, rotated by its EXIF orientation, with 8 bits per channel; `reading.window` is applied."""
    from PIL import Image, ImageOps

    if not header.deep:
        if reading.size and image.size != reading.size[::-1]:  # decode a JPEG at 1/2, 1/4 or 1/8 of its size
            turned = reading.size if image.size != header.size else reading.size[::-1]
            image.draft("L" if header.mode == "L" else "RGB", (2 * turned[0], 2 * turned[1]))
        return ImageOps.exif_transpose(image)
    assert reading.window is not None
    low, high = reading.window
    negative = image.format == "TIFF" and image.tag_v2.get(PHOTOMETRIC) == WHITE_IS_ZERO  # Pillow turns only 8 bits
    values = np.asarray(ImageOps.exif_transpose(image), dtype=np.float64) * header.scale
    if lost := np.isnan(values).sum():
        raise ValueError(f"{plural(lost, 'pixel')} of {values.size:,} {'is' if lost == 1 else 'are'} NaN")
    shades = np.rint((values - low).clip(0, high - low) * (255 / (high - low))).astype(np.uint8)
    return Image.fromarray(255 - shades if negative else shades)


def _sized(image: Any, mode: str, size: tuple[int, int]) -> Any:
    from PIL import Image

    image = image.convert(mode)
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


def _header(file: Path) -> _Header:
    if (length := file.stat().st_size) > MAX_FILE:
        raise InputError(f"{file} has {length:,} bytes, more than the {gib(MAX_FILE)} allowed: save it smaller.")
    with readable(file), _open(file) as image:
        width, height = image.size
        size = (height, width) if _sideways(image) else (width, height)
        return _Header(size, image.mode, *_depth(image), _has_pages(image))


def _depth(image: Any) -> tuple[int, float]:
    """Return the bits per channel in a file, and the scale of its gray values, as in `_Header`."""
    if image.format == "TIFF":
        return max(image.tag_v2.get(BITS_PER_SAMPLE, (1,))), 1
    if image.format not in ("PPM", "PNG"):  # the others have 8 bits, and the tile of a WebP image is not known yet
        return 8, 1
    codec, *_, coding = image.tile[0]
    if codec.startswith("ppm"):
        highest: int = coding[-1]  # for a maximum above 255, Pillow scales it to 65535
        return highest.bit_length(), highest / 65535
    return 16 if ";16" in str(coding) else 8, 1


def _has_pages(image: Any) -> bool:
    """Return whether a file has more than one page or frame. A smaller copy of the first page in a TIFF is none."""
    if image.format not in ("PNG", "TIFF", "WEBP") or not image.is_animated:
        return False
    with contextlib.suppress(Exception):  # the first page may be whole although the next is not
        if image.format == "TIFF":
            image.seek(1)
            return not image.tag_v2.get(SUBFILE_TYPE, 0) & 1
    return True


def _sideways(image: Any) -> bool:
    """Return whether the orientation in EXIF or XMP swaps width and height. Pillow rotates TIFFs itself."""
    from PIL import Image

    if image.format == "TIFF":
        return False
    return Image.Image.getexif(image).get(ORIENTATION) in LYING  # the method of PNG files would decode the pixels


def _open(path: Path) -> Any:
    """Return a Pillow image whose header was read. Raises InputError if it has too many pixels."""
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


def _common_mode(headers: dict[Path, _Header], reading: Reading) -> str:
    """Return the Pillow mode for all images, ``"L"`` or ``"RGB"``.

    Raises InputError if images have several sizes without `reading.size`, or more than 8 bits per channel without a
    known range. Files with 16 bits per channel may use only 10, 12 or 14 of them.
    """
    first, size = next((file, header.size) for file, header in headers.items())
    for file, header in headers.items():
        if reading.size is None and header.size != size:
            raise InputError(
                f"{file} has {header.size[0]} x {header.size[1]} pixels and {first.name} has {size[0]} x {size[1]}:"
                " give the experiment's image a size, to which all are resized, or resize them."
            )
        if header.bits > 8 and not header.deep:
            raise InputError(
                f"{file} has {header.bits} bits per channel and several channels (mode {header.mode}): more than 8 bits"
                " are read only in gray images without transparency; save it with 8 bits per channel."
            )
        if header.deep and reading.window is None:
            raise InputError(
                f"{file} has more than 8 bits per channel (mode {header.mode}): set the values of"
                " black and white, for example image: {window: [0, 4095]} for 12 bits, or save it with 8 bits."
            )
    return "L" if all(header.mode in ("1", "L", "LA") or header.deep for header in headers.values()) else "RGB"
