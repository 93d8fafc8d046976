"""The source `folder`: image files in one subfolder per class, or without labels."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import class_names, composed
from ktpfl_pipeline.data.sources.arguments import folder_in
from ktpfl_pipeline.data.sources.labels import in_order
from ktpfl_pipeline.data.sources.limits import readable
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, IMAGE_SUFFIXES, Reading, photographs

TRAIN, VALIDATION, TEST = {"train", "training"}, {"val", "valid", "validation"}, {"test", "testing"}
"""Names, in lower case, of the folders for training, validation and test samples."""


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the images of a folder that has one subfolder per class.

    Classes are numbered by the names of the subfolders, see `in_order`. Images in folders below a subfolder belong to
    the class of the subfolder. Images are sorted by name. Names that begin with a dot are skipped. Other files are
    skipped with a warning.

    The subfolders may also be `train`, `test` and optionally `val`, each with a subfolder per class. Images in `test`
    are then marked as test samples. Images in `val` count as training samples, from which each client draws its
    validation samples. Raises InputError if the folder has another layout, or images cannot be read.
    """
    path = folder_in("folder", argument, folder)
    parts, test = parts_of(path, path)
    if test is None:
        _check_classes(subfolders(path, path), path)
    images, labels, part, called = classified(path, parts, reading)
    return LabeledDataset(images, labels, class_names=called, test=None if test is None else torch.tensor(test)[part])


def parts_of(place: Path, root: Path) -> tuple[list[dict[str, list[Path]]], list[bool] | None]:
    """Return the image files by class of each part of a given split, and whether each part is for test.

    A folder without a given split has one part; the second value is then None.
    """
    inside = subfolders(place, root)
    if not is_given_split(inside) or any(files_in(each, root) or not subfolders(each, root) for each in inside):
        return [by_class(place, root)], None
    return [by_class(each, root) for each in inside], tested([each.name for each in inside])


def classified(
    root: Path, parts: Sequence[dict[str, list[Path]]], reading: Reading
) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Read the images of the parts of a folder, where each part has image files by class.

    Returns:
        The images, (M, C, H, W) uint8; their labels, (M,) int64; the index of the part of each image, (M,) int64; and
        the names of the classes.
    """
    names = in_order(set().union(*parts))
    found = [(file, names.index(name), part) for part, own in enumerate(parts) for name in own for file in own[name]]
    images, kept = photographs(root, [file for file, *_ in found], reading)
    labels, part = (torch.tensor([each[place] for each in found])[kept] for place in (1, 2))
    return images, labels, part, class_names(names, labels, root)


def _check_classes(places: list[Path], root: Path) -> None:
    """Raise InputError if the subfolders seem to be clients, which would be read as classes.

    Subfolders seem to be clients if none directly contains images and all have at least two subfolder names in common.
    """
    if len(places) < 2 or any(files_in(place, root) for place in places):
        return
    names = [{entry.name for entry in subfolders(place, root)} for place in places]
    if len(common := sorted(set.intersection(*names))) > 1:
        raise InputError(
            f"{root} has {len(places):,} subfolders, and each has subfolders named {' and '.join(common[:2])}: they"
            " seem to be clients, each with a subfolder per class. Write clients: for folder: if it has a folder per"
            " client, or move the images of each class into one subfolder."
        )


def tested(names: Iterable[str]) -> list[bool]:
    """Return whether each part of a given split, by name, is for test: `test`, or `val` if there is no `test`."""
    lower = [name.lower() for name in names]
    chosen = TEST if TEST.intersection(lower) else VALIDATION
    return [name in chosen for name in lower]


def is_given_split(places: list[Path]) -> bool:
    """Return whether folders are named like the parts of a split: train, and test or val."""
    names = {place.name.lower() for place in places}
    return bool(names & TRAIN) and len(names) > 1 and names <= TRAIN | VALIDATION | TEST


def unlabeled(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> tuple[Tensor, None]:
    """Return the images in a folder and in all folders below it, (N, C, H, W) uint8, and None for the vocabulary."""
    path = folder_in("folder", argument, folder)
    files = files_below(path, path)
    if not files:
        raise InputError(f"{path} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or correct the path.")
    return photographs(path, files, reading)[0], None


def by_class(place: Path, root: Path) -> dict[str, list[Path]]:
    """Return the image files in and below each subfolder of `place`; symbolic links must stay within `root`.

    Raises InputError if there is no subfolder, or a subfolder has no images. If the folder fits the source `folder` or
    `clients` better, the message says so.
    """
    found = {entry: files_below(entry, root) for entry in subfolders(place, root)}
    if not found:
        other = f", or write folder: for clients: if {root} has a folder per class" if files_in(place, root) else ""
        raise InputError(
            f"{place} has no subfolders: put the images of each class into a subfolder of its own"
            f"{other if place != root else ''}."
        )
    classes: dict[str, list[Path]] = {}
    for entry, files in found.items():
        classes.setdefault(composed(entry.name), []).extend(files)
        if not files:
            holds = subfolders(entry, root) or files_in(entry, root, (".npz",))
            other = (
                f", or write clients: for folder: if {root} has a folder per client" if holds and place == root else ""
            )
            raise InputError(f"{entry} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or remove it{other}.")
    return classes


def files_below(place: Path, root: Path) -> list[Path]:
    """Return the image files in `place` and in all folders below it, sorted within each folder, `place` first."""
    below = []
    for entry in subfolders(place, root):
        if Path(os.path.realpath(place)).is_relative_to(os.path.realpath(entry)):
            raise InputError(f"{entry} is a symbolic link to a folder above it: remove it.")
        below += files_below(entry, root)
    return [*files_in(place, root), *below]


def subfolders(place: Path, root: Path) -> list[Path]:
    """Return the folders in `place`, sorted, without names that begin with a dot. Links must stay within `root`."""
    with readable(place):
        found = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for entry in found:
        _check_inside(entry, root)
    return found


def files_in(place: Path, root: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """Return the files in `place` with these suffixes, sorted. Raises InputError for the reasons of `check_file`."""
    with readable(place):
        files = (file for file in place.iterdir() if file.suffix.lower() in suffixes)
        shown = sorted(file for file in files if not file.name.startswith("."))
    for file in shown:
        check_file(file, root)
    return shown


def check_file(file: Path, root: Path) -> None:
    """Raise InputError if `file` is not a regular file, or is a symbolic link out of `root`."""
    _check_inside(file, root)
    if not file.is_file():  # reading a pipe would never end
        raise InputError(f"{file} is not a file that can be read (a folder, a pipe, a broken link): remove it.")


def _check_inside(path: Path, root: Path) -> None:
    """Raise InputError for a symbolic link out of `root`: a foreign dataset must not read other files of the user."""
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it accepts a link to itself
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(root)):
        raise InputError(f"{path} is a symbolic link out of its folder, to {target}: put a copy in its place.")
