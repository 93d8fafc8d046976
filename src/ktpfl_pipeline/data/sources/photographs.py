"""Image files as tensors: upright, in one size and in 8 bits, and unreadable files named together or skipped."""

import logging
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError, listed, plural
from ktpfl_pipeline.core.machine.resources import check_claim, gib
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources.limits import MAX_FILE, MAX_PIXELS, brief, readable

logger = logging.getLogger(__name__)
Size = tuple[int, int]  # height and width

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
IMAGE_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not all of Pillow's: for EPS it starts Ghostscript
LYING = (5, 6, 7, 8)  # EXIF orientations with which width and height are exchanged
ORIENTATION = 0x0112  # EXIF's tag
BITS_PER_SAMPLE = 258  # TIFF's tag


class Reading(NamedTuple):
    """How image files and texts are read.

    Attributes:
        size: height and width that each image is brought to as it is read; None: the images stay as they are, all of
            one size.
        window: values of gray images with more than 8 bits that become 0 and 255; values outside become 0 or 255, and
            those between are scaled linearly. None: such images are refused, because their range is not known.
        skip: whether files that cannot be read are left out, and counted in a warning; else they are an error.
        text: how texts become tokens.
        known: the vocabulary of the private texts, which public texts use; None for private texts.
    """

    size: Size | None = None
    window: tuple[float, float] | None = None
    skip: bool = False
    text: Text = Text()
    known: Vocabulary | None = None

    def of_public(self, private: LabeledDataset) -> "Reading":
        """Return how public samples are read next to these private ones: texts in their vocabulary and length."""
        if private.vocabulary is None:
            return self
        return self._replace(known=private.vocabulary, text=replace(self.text, length=private.shape[0]))


AS_THEY_ARE = Reading()


class _Header(NamedTuple):
    """Facts of an image file before its pixels are decoded.

    Attributes:
        size: displayed width and height.
        mode: Pillow's, of the pixels that it will decode.
        bits: per channel in the file, of which Pillow decodes the highest 8 where there are several channels.
        scale: what a gray value that Pillow decodes is multiplied by to have the one in the file.
    """

    size: tuple[int, int]
    mode: str
    bits: int
    scale: float

    @property
    def deep(self) -> bool:
        """Whether the one channel is decoded with more than 8 bits."""
        return self.mode.startswith(("I", "F"))


class _Unreadable:
    """The files that could not be read, with their errors, in the order in which they were found."""

    def __init__(self) -> None:
        self.errors: dict[Path, InputError] = {}

    @contextmanager
    def collected(self, file: Path) -> Iterator[None]:
        """Keep the `InputError` of reading a file instead of raising it."""
        try:
            with readable(file, fix="replace or remove it, or set image.unreadable to skip"):
                yield
        except InputError as error:
            self.errors[file] = error

    def settle(self, where: Path, of: int, skip: bool) -> None:
        """Raise one `InputError` for all of them, or warn of them where they are skipped."""
        if not self.errors:
            return
        if skip and len(self.errors) < of:
            logger.warning(
                f"{where}: reading skips {len(self.errors):,} of {plural(of, 'image')}, which cannot be read: {self}."
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
    """Return image files as they are seen, (M', C, H, W) uint8, and which of the M files these are, (M,) bool.

    Photographs are turned upright by their EXIF orientation. Gray images stay gray if all of them are; otherwise all
    become RGB (transparency is dropped). Headers come first: sizes and modes are known, and memory is asked for once,
    before any pixel is decoded. No more than one image is in memory at its own size. Images are resized by Pillow's
    bilinear filter, which averages when it shrinks. The files are `listed` if a table names them, so that
    others next to them are none of its images.

    One `InputError` names all files that cannot be read, unless they are skipped. Others say that images have several
    sizes where no size is given, or more than 8 bits where no window is given or there are several channels.
    """
    if not listed:
        _warn_of_skipped(where, files)
    lost = _Unreadable()
    headers: dict[Path, _Header] = {}
    for file in files:
        with lost.collected(file):
            headers[file] = _header(file)
    lost.settle(where, len(files), reading.skip)
    mode = _common_mode(headers, reading)
    (width, height), channels = reading.size[::-1] if reading.size else next(iter(headers.values())).size, len(mode)
    check_claim(where, len(headers) * height * width * channels, "take fewer or smaller images")
    if others := sum(header.size != (width, height) for header in headers.values()):
        logger.info(
            f"Resizing to {height} × {width} changes {others:,} of the {plural(len(files), 'image')} in {where}."
        )
    images = np.empty((len(headers), height, width, channels), dtype=np.uint8)
    late, row = _Unreadable(), 0
    for file, header in headers.items():
        with late.collected(file), _open(file) as image:
            pixels = np.asarray(_sized(_eight_bits(image, header, reading), mode, (width, height)))
            images[row] = pixels.reshape(height, width, channels)
            row += 1
    late.settle(where, len(headers), reading.skip)
    kept = torch.tensor([file in headers and file not in late.errors for file in files])
    return torch.from_numpy(images[:row]).permute(0, 3, 1, 2).contiguous(), kept


def _warn_of_skipped(where: Path, files: list[Path]) -> None:
    """Warn of the files next to the images that are none by their names, such as a `.gif`."""
    skipped: Counter[str] = Counter()
    for place in {file.parent for file in files}:
        with readable(place):
            beside = [file for file in place.iterdir() if not file.name.startswith(".") and file.is_file()]
        skipped.update(file.suffix.lower() for file in beside if file.suffix.lower() not in IMAGE_SUFFIXES)
    if skipped:
        kinds = [f"{number:,} {suffix or 'without an ending'}" for suffix, number in sorted(skipped.items())]
        logger.warning(f"{where}: other files are skipped, {', '.join(kinds)}; images are {', '.join(IMAGE_SUFFIXES)}.")


def _eight_bits(image: Any, header: _Header, reading: Reading) -> Any:
    """Return Pillow's image upright, with 8 bits per channel: the window's ends become 0 and 255."""
    from PIL import Image, ImageOps

    if not header.deep:
        if reading.size and image.size != reading.size[::-1]:  # a JPEG is decoded at a half, a quarter or an eighth
            turned = reading.size if image.size != header.size else reading.size[::-1]
            image.draft("L" if header.mode == "L" else "RGB", (2 * turned[0], 2 * turned[1]))
        return ImageOps.exif_transpose(image)
    assert reading.window is not None
    low, high = reading.window
    values = np.asarray(ImageOps.exif_transpose(image), dtype=np.float64) * header.scale
    return Image.fromarray(np.rint((values - low).clip(0, high - low) * (255 / (high - low))).astype(np.uint8))


def _sized(image: Any, mode: str, size: tuple[int, int]) -> Any:
    from PIL import Image

    image = image.convert(mode)
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)


def _header(file: Path) -> _Header:
    if (length := file.stat().st_size) > MAX_FILE:
        raise InputError(f"{file} has {length:,} bytes, more than the {gib(MAX_FILE)} allowed: save it smaller.")
    with readable(file), _open(file) as image:
        width, height = image.size
        return _Header((height, width) if _sideways(image) else (width, height), image.mode, *_depth(image))


def _depth(image: Any) -> tuple[int, float]:
    """Return the bits per channel in a file, and the scale of its gray values, as a `_Header` has them."""
    codec, *_, coding = image.tile[0]
    if codec.startswith("ppm"):
        highest: int = coding[-1]  # Pillow stretches gray values above 255 from this to 65535
        return highest.bit_length(), highest / 65535
    if image.format == "TIFF":
        return max(image.tag_v2.get(BITS_PER_SAMPLE, (1,))), 1
    return 16 if ";16" in str(coding) else 8, 1


def _sideways(image: Any) -> bool:
    """Return whether an image is stored on its side; Pillow turns TIFFs by itself. No pixel is decoded for it."""
    from PIL import Image

    if image.format == "TIFF" or "exif" not in image.info:
        return False
    exif = Image.Exif()
    exif.load(image.info["exif"])
    return exif.get(ORIENTATION) in LYING


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


def _common_mode(headers: dict[Path, _Header], reading: Reading) -> str:
    """Return Pillow's mode for all images, ``"L"`` or ``"RGB"``; refuse several sizes, and a range that is not known.

    The range of a channel of more than 8 bits is not known: scanners fill 10, 12, 14 or 16 of them.
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
