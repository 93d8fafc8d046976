"""Where images come from: scikit-learn's digits, torchvision's datasets, an `.npz` file, or a folder of images.

`SOURCES` is the registry: a new source is one function and one line. Every source gives all its images, as they are
(uint8, native channels and size); `adapt` brings them to the channels and size of a federation.
"""

import hashlib
import io
import math
import os
import shutil
import socket
import sys
import tempfile
import textwrap
import warnings
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.executors.resources import free_memory
from ktpfl_pipeline.core.samples import Samples

# What is larger is refused by its headers, before anything is allocated or unpacked (docs/running.md, "Limits").
MAX_BYTES = 16 * 2**30  # of all images of a source: a zip of a few megabytes may claim petabytes
MAX_PIXELS = 2**26  # of one image, which is decoded whole: 8192 x 8192, and they end as 28 or 32 pixels
MAX_FILE = 4 * MAX_PIXELS  # bytes of one image file: some decoders read it whole, and no format needs more a pixel
MAX_HEADER = 10_000  # bytes of an array's header: numpy writes a hundred, and reads the 4 GiB that one may claim
MAX_READ = 2**24  # bytes of a .npz read at once: its directory is, and one of gigabytes may be claimed
MAX_CLASSES = 10_000
IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
IMAGE_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not all of Pillow's: for EPS it starts Ghostscript
EMNIST_SPLITS = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")

Source = Callable[[str, Path], Samples]
Header = tuple[tuple[int, ...], "np.dtype[Any]"]  # shape and dtype

_CHUNK_VALUES = 2**24  # float32 values that `adapt` holds at a time: 64 MiB
_SILENCE_SECONDS = 60.0  # torchvision sets no timeout, and a firewall that drops packets would hang the run
_SAVE_AGAIN = "save it again with numpy.savez_compressed(path, images=images, labels=labels)"


def load(source: str, folder: Path, classes: Sequence[int] | None = None) -> Samples:
    """Return all images of a source with their labels.

    Args:
        source: a name of `SOURCES`, or ``"name:argument"``: ``"emnist:balanced"``, ``"npz:my/images.npz"``.
        folder: where datasets are downloaded to and where relative paths start (the project's `data/01_raw`).
        classes: keep only the images of these classes and renumber them 0, 1, ... in the order given; None keeps all.

    Returns:
        images (M, channels, height, width) in the source's own channels and size, and labels (M,).

    Raises:
        InputError: unknown source or class, a file that is missing or unusable, a download that failed.

    Example:
        The paper's EMNIST task, letters A to J: ``load("emnist:letters", raw, classes=range(10))``.
    """
    name, _, argument = source.partition(":")
    if name not in SOURCES:
        if source.endswith(".npz"):
            raise InputError(f"source {source!r} is unknown: a file of your own is given as {f'npz:{source}'!r}.")
        raise unknown("source", source, SOURCES)
    samples = SOURCES[name](argument, folder)
    return samples if classes is None else _keep(samples, classes, source)


def adapt(images: Tensor, channels: int, size: int) -> Tensor:
    """Return the images with the channels and size of the federation; `images` itself when nothing is to be done.

    Grey becomes RGB by repetition, RGB becomes grey by the luma of ITU-R BT.601 (0.299 R + 0.587 G + 0.114 B). Sizes
    change by bilinear interpolation, with antialiasing when shrinking; values are rounded once, at the end.

    Args:
        images: (M, 1 or 3, height, width), uint8.
        channels: 1 (grey) or 3 (RGB).
        size: height and width of the result, in pixels.

    Returns:
        (M, channels, size, size), uint8.

    Raises:
        InputError: channels other than 1 or 3, a size below 1, or a result of more than 16 GiB.
    """
    if channels not in (1, 3):
        raise InputError(f"{channels} image channels are not supported: choose 1 (grey) or 3 (RGB).")
    if size < 1:
        raise InputError(f"the image size {size} is not possible: choose 1 pixel or more, such as 28 or 32.")
    number, given, height, width = images.shape
    if (given, height, width) == (channels, size, size):
        return images
    if number * channels * size**2 > _room():
        raise InputError(
            f"{number:,} images of {size} x {size} pixels need more than {_gib(_room())}: choose a smaller size."
        )
    adapted = torch.empty(number, channels, size, size, dtype=torch.uint8)
    rows = max(1, _CHUNK_VALUES // (given * max(height, size) * max(width, size)))
    for start in range(0, number, rows):
        chunk = images[start : start + rows].float()
        if channels < given:
            chunk = (chunk * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(dim=1, keepdim=True)
        if (height, width) != (size, size):
            shrinks = size < max(height, width)
            chunk = interpolate(chunk, (size, size), mode="bilinear", align_corners=False, antialias=shrinks)
        adapted[start : start + rows] = chunk.round().clamp(0, 255).to(torch.uint8)  # grey is repeated here
    return adapted


def _keep(samples: Samples, classes: Sequence[int], source: str) -> Samples:
    """Return the samples of `classes`, renumbered in that order; they keep the order of the source."""
    present = np.unique(samples.labels.numpy()).tolist()
    unknown = [label for label in classes if label not in present]
    if unknown:
        raise InputError(
            f"class {unknown[0]} is not in source {source!r}: `classes` may name {_ranges(present)} (and is left out to"
            " keep them all)."
        )
    if not classes or len(set(classes)) < len(classes):
        raise InputError(f"classes {list(classes)} must name one class or more, each once.")
    renumbered = torch.full((present[-1] + 1,), -1)
    renumbered[torch.tensor(list(classes))] = torch.arange(len(classes))
    kept = renumbered[samples.labels] >= 0
    return Samples(samples.images[kept], renumbered[samples.labels[kept]])


def _ranges(numbers: list[int]) -> str:
    """Return sorted `numbers` in words: ``0 to 9``, or each of them when some are missing in between."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return textwrap.shorten(", ".join(str(number) for number in numbers), 120, placeholder=" ...")


def _brief(error: Exception) -> str:
    return textwrap.shorten(str(error), 200, placeholder=" ...")


def _gib(size: int) -> str:
    return f"{size // 2**30:,} GiB" if size >= 2**30 else f"{size // 2**20:,} MiB"


def _room() -> int:
    """Return how many bytes of images may be read: RGB images are copied once, so half of the memory that is free."""
    return min(MAX_BYTES, free_memory() // 2) if sys.platform == "linux" else MAX_BYTES


def _refuse_too_much(path: Path, claimed: int, mend: str) -> None:
    if claimed > MAX_BYTES:
        raise InputError(f"{path} claims {_gib(claimed)} of images, more than the {_gib(MAX_BYTES)} allowed: {mend}.")
    if claimed > (room := _room()):
        raise InputError(
            f"{path} claims {_gib(claimed)} of images, more than half of the free memory ({_gib(room)}): {mend}."
        )


# ----------------------------------------------------------------------------------------------- scikit-learn's digits


def _digits(argument: str, folder: Path) -> Samples:
    """Return the 1,797 digits of 8 x 8 pixels that come with scikit-learn; the values 0 to 16 become 0 to 255.

    Its file is read without importing scikit-learn, which takes longer than all that a run does before it trains.
    """
    _no_argument(argument)
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise InputError("the digits come with scikit-learn, which is not installed: pip install scikit-learn.")
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", np.float64, delimiter=",")
    images = np.rint(table[:, :64] * (255 / 16)).astype(np.uint8)
    return Samples(torch.from_numpy(images).reshape(-1, 1, 8, 8), torch.from_numpy(table[:, 64].astype(np.int64)))


def _no_argument(argument: str) -> None:
    if argument:
        raise InputError(f"this source takes no argument and was given {argument!r}: leave out ':{argument}'.")


# ---------------------------------------------------------------------------------------------- torchvision's datasets


def _torchvision(dataset: str, argument: str, folder: Path) -> Samples:
    """Return torchvision's `dataset`, named as its class."""
    _no_argument(argument)
    return _both_parts(dataset, folder)


def _emnist(argument: str, folder: Path) -> Samples:
    """Return one split of EMNIST, upright and with labels from 0.

    The split is `letters` unless the argument names another: with ``classes: 0..9`` these are the letters A to J, the
    ten classes of the paper (KT-pFL section 5.1 says "EMNIST" and ten classes, not which).
    """
    split = argument or "letters"
    if split not in EMNIST_SPLITS:
        raise unknown("the split of emnist:<split>", split, EMNIST_SPLITS)
    samples = _both_parts("EMNIST", folder, split=split)
    upright = samples.images.transpose(2, 3).contiguous()  # the files hold every image column by column
    labels = samples.labels - 1 if split == "letters" else samples.labels  # A is 1 in the files
    if labels.min() < 0:
        raise InputError(f"emnist:letters in {folder} has a label 0, and A is 1: delete its files to fetch them anew.")
    return Samples(upright, labels)


def _both_parts(dataset: str, folder: Path, **options: str) -> Samples:
    """Return the train and the test part of a torchvision dataset together: each client splits its share anew.

    What is in `folder` is used; what is missing or cannot be read is downloaded, or unpacked from an archive there.
    """
    import torchvision

    kind = getattr(torchvision.datasets, dataset)

    def read(root: Path, download: bool) -> list[Any]:
        return [kind(root, train=train, download=download, **options) for train in (True, False)]

    damaged = [str(path) for path in _idx_files(kind, folder, **options) if path.is_file() and not _whole_idx(path)]
    try:
        parts = [] if damaged else read(folder, download=False)
    except (OSError, RuntimeError, ValueError, AssertionError, KeyError, EOFError):  # absent, or cut short
        parts = []
    parts = parts or _fetch(kind, folder, partial(read, download=True), damaged)
    images, labels = ([torch.as_tensor(getattr(part, name)) for part in parts] for name in ("data", "targets"))
    if [len(part) for part in images] != [len(part) for part in labels] or images[0].shape[1:] != images[1].shape[1:]:
        raise InputError(
            f"The files of {dataset} in {folder} do not go together (images {[tuple(part.shape) for part in images]},"
            f" labels {[tuple(part.shape) for part in labels]}): delete them, and they are fetched anew."
        )
    both = torch.cat(images)
    both = both.unsqueeze(1) if both.ndim == 3 else both.permute(0, 3, 1, 2)
    return Samples(both.contiguous(), torch.cat(labels).long())


def _idx_files(kind: Any, folder: Path, split: str = "") -> list[Path]:
    """Return the unpacked files of MNIST and its like that torchvision would read whole; none of CIFAR."""
    if hasattr(kind, "tgz_md5"):  # its files are read only if their MD5 sums are those of the real ones
        return []
    stems = [f"emnist-{split}-train", f"emnist-{split}-test"] if split else ["train", "t10k"]
    place = folder / _archives(kind)[0]
    return [place / f"{stem}-{end}" for stem in stems for end in ("images-idx3-ubyte", "labels-idx1-ubyte")]


def _whole_idx(path: Path) -> bool:
    """Return whether a file holds the images or labels that its header claims; refuse one too large to be read."""
    dimensions = 3 if "idx3" in path.name else 1
    try:
        with path.open("rb") as file:
            head = file.read(4 + 4 * dimensions)
    except OSError:
        return False
    values = math.prod(int.from_bytes(head[at : at + 4], "big") for at in range(4, len(head), 4))
    if head[:4] != bytes([0, 0, 8, dimensions]) or path.stat().st_size != 4 + 4 * dimensions + values or not values:
        return False
    _refuse_too_much(path, values, "replace it by the real one")
    return True


def _fetch(kind: Any, folder: Path, download: Callable[[Path], list[Any]], unusable: list[str]) -> list[Any]:
    """Return the parts of a dataset after downloading it into `folder`, where whole files alone ever appear.

    torchvision takes an unpacked MNIST file for whole because it exists. So everything happens in a folder beside, and
    moves over, file by file, once both parts have been read.
    """
    place, archives = _archives(kind)
    given = {name: folder / place / name for name in archives if (folder / place / name).is_file()}
    damaged = [str(path) for name, path in given.items() if _md5(path) != archives[name]]
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as beside:
            stage = Path(beside)
            (stage / place).mkdir(parents=True, exist_ok=True)
            for path in given.values():
                if str(path) not in damaged:
                    shutil.copyfile(path, stage / place / path.name)
            parts = download(stage)
            for path in [path for path in stage.rglob("*") if path.is_file()]:
                target = folder / path.relative_to(stage)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
    except (OSError, RuntimeError, HTTPException) as error:
        incomplete = f" {', '.join(damaged)} is there but incomplete (wrong MD5 sum): replace it." if damaged else ""
        if unusable:
            incomplete += f" {', '.join(unusable)} is there but not as long as its header says: replace it."
        raise InputError(
            f"{kind.__name__} could not be downloaded into {folder} ({_brief(error)}): put {', '.join(archives)} into"
            f" {folder / place}, or choose a source that needs no network, `source: digits` or"
            f" `source: npz:yourfile.npz`.{incomplete}"
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)
    return parts


def _archives(kind: Any) -> tuple[str, dict[str, str]]:
    """Return where torchvision looks for the archives of a dataset, below its root, and {file name: MD5 sum}."""
    if hasattr(kind, "tgz_md5"):  # CIFAR
        return "", {kind.filename: kind.tgz_md5}
    place = f"{kind.__name__}/raw"
    if hasattr(kind, "md5"):  # EMNIST: one archive for all its splits
        return place, {kind.url.rpartition("/")[2]: kind.md5}
    return place, dict(kind.resources)  # MNIST, Fashion-MNIST


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()


# ------------------------------------------------------------------------------------------------- the user's own data


def _npz(argument: str, folder: Path) -> Samples:
    """Return the arrays `images` (uint8, N x H x W or N x H x W x C with C 1 or 3) and `labels` (integers, N).

    Labels are class numbers from 0 and are used as they are; a class without images is no error. Shapes and types are
    read from the headers and checked before any array is.
    """
    path = _path("npz", argument, folder, "npz:yourfile.npz")
    if not os.path.isfile(path):  # unlike Path.is_file, False for a name that is too long or may not be looked at
        raise _no_such("file", path, folder)
    try:
        with _Bounded(path) as file:
            _check_headers(path, _headers(path, file))
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                images, labels = arrays["images.npy"], arrays["labels.npy"]  # the members just checked
    except InputError:
        raise
    except Exception as error:  # a zip with wrong bytes makes its readers stumble in any way at all
        raise InputError(f"{path} is not a whole .npz file ({_brief(error)}): {_SAVE_AGAIN}.") from error
    if labels.min() < 0 or labels.max() >= MAX_CLASSES:
        raise InputError(
            f"the labels in {path} run from {labels.min()} to {labels.max()}: number the classes from 0 to at most"
            f" {MAX_CLASSES - 1}."
        )
    channels_last = torch.from_numpy(images if images.ndim == 4 else images[..., None])
    return Samples(channels_last.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels.astype(np.int64)))


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
    """Refuse what cannot be images and labels, one sentence each."""
    for name, (_, kind) in headers.items():
        if kind.hasobject:
            raise InputError(
                f"the array {name!r} in {path} holds Python objects, which could run code when read: save plain"
                " numbers, all images of one size."
            )
    (shape, dtype), (label_shape, label_dtype) = headers["images"], headers["labels"]
    if dtype != np.uint8:
        cast = "(images * 255).round().astype('uint8') if they lie between 0 and 1" if dtype.kind == "f" else "uint8"
        raise InputError(f"the array 'images' in {path} is {dtype} and must be uint8, 0 to 255: save {cast}.")
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3)):
        mend = "images.transpose(0, 2, 3, 1)" if len(shape) == 4 and shape[1] in (1, 3) else "them in one of these"
        raise InputError(
            f"the array 'images' in {path} has shape {shape} and must have N x H x W, N x H x W x 1 or N x H x W x 3:"
            f" save {mend}."
        )
    if min(shape) < 1:
        raise InputError(f"the array 'images' in {path} is empty (shape {shape}): save one image or more.")
    if label_dtype.kind not in "iu" or len(label_shape) != 1:
        raise InputError(
            f"the array 'labels' in {path} is {label_dtype} of shape {label_shape} and must be integers of shape (N,):"
            " save one class number per image."
        )
    if label_shape[0] != shape[0]:
        raise InputError(
            f"{path} has {shape[0]:,} images and {label_shape[0]:,} labels: save as many labels as images."
        )
    as_read = math.prod(shape) + 8 * label_shape[0]  # labels become int64
    _refuse_too_much(path, as_read, f"save fewer or smaller images than {shape}")


def _folder(argument: str, folder: Path) -> Samples:
    """Return the images of a folder that has one subfolder per class.

    Classes are numbered by the sorted names of the subfolders (as text: "10" comes before "2"), images are sorted by
    name, names that begin with a dot and files other than images are passed over. Grey images stay grey if all of
    them are; otherwise all become RGB (transparency is dropped).
    """
    path = _path("folder", argument, folder, "folder:yourfolder")
    if not os.path.isdir(path):
        raise _no_such("folder", path, folder)
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
        _refuse_too_much(path, len(paths) * height * width * channels, "take fewer or smaller images")
        images = np.empty((len(paths), height, width, channels), dtype=np.uint8)
        for row, current in enumerate(paths):
            with _open(current) as image:
                images[row] = np.asarray(image.convert(mode)).reshape(height, width, channels)
    except InputError:
        raise
    except Exception as error:  # wrong bytes make Pillow's readers stumble in any way at all
        raise InputError(f"{current} cannot be read ({_brief(error)}): replace or remove it.") from error
    labels = torch.repeat_interleave(torch.tensor([len(files) for files in found.values()]))
    return Samples(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels)


def _images_in(place: Path, root: Path) -> list[Path]:
    """Return the image files in `place`, and refuse what only looks like one or lies outside `root`."""
    _refuse_outside(place, root)
    shown = sorted(
        file for file in place.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith(".")
    )
    if not shown:
        raise InputError(f"{place} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or remove the folder.")
    for file in shown:
        _refuse_outside(file, root)
        if not file.is_file():  # reading a pipe would wait for ever
            raise InputError(f"{file} is no file that can be read (a folder, a pipe, a broken link): remove it.")
        if (size := file.stat().st_size) > MAX_FILE:
            raise InputError(f"{file} has {size:,} bytes, more than the {_gib(MAX_FILE)} allowed: save it smaller.")
    return shown


def _refuse_outside(path: Path, root: Path) -> None:
    """Refuse a symbolic link that leads out of the folder: a folder from elsewhere must not name files of yours."""
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
            f"{path} has more than the {MAX_PIXELS:,} pixels allowed ({_brief(error)}): make it smaller."
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


def _path(name: str, argument: str, folder: Path, example: str) -> Path:
    """Return the path in a source's argument: absolute as it is, relative from `folder` and within it."""
    if not argument:
        raise InputError(f"source {name!r} needs a path: write {example!r}.")
    if "\0" in argument:
        raise InputError(f"the path {argument!r} of source {name!r} has a zero byte, which no name has: correct it.")
    path = folder / os.path.expanduser(argument)
    if Path(os.path.normpath(argument)).parts[:1] == ("..",):
        raise InputError(
            f"the path {argument!r} leaves {folder}: write {os.path.abspath(path)} if that is what you mean."
        )
    return path


def _no_such(kind: str, path: Path, folder: Path) -> InputError:
    """Return the error for a path where there is no `kind`, ``"file"`` or ``"folder"``."""
    if os.path.isdir(path):
        return InputError(f"{path} is a folder and not a file: folders of images are given as 'folder:<folder>'.")
    if os.path.isfile(path):
        return InputError(f"{path} is a file and not a folder: give the folder that has a subfolder per class.")
    if os.path.lexists(path):
        return InputError(f"{path} is neither file nor folder (a pipe, a device, a broken link): correct the path.")
    return InputError(f"there is no {kind} {path}: correct the path (relative paths start at {folder}).")


SOURCES: dict[str, Source] = {
    "digits": _digits,
    "cifar10": partial(_torchvision, "CIFAR10"),
    "cifar100": partial(_torchvision, "CIFAR100"),
    "mnist": partial(_torchvision, "MNIST"),
    "fashion_mnist": partial(_torchvision, "FashionMNIST"),
    "emnist": _emnist,  # emnist:<split>, letters by default
    "npz": _npz,  # npz:<path>
    "folder": _folder,  # folder:<path>
}
"""{name: function of (argument, folder)}: what may stand in `source:`."""
