"""Photographs of the user's own: folders of image files, one subfolder per class or without labels."""

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
"""What the folders of a given split are called, in lower case."""


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the images of a folder that has one subfolder per class.

    Classes are numbered by the names of the subfolders, `in_order`. Images in folders below a class belong to that
    class. Images are sorted by name. Names that begin with a dot are skipped; files other than
    images are skipped with a warning.

    If the subfolders are `train`, `test` and optionally `val`, each with a subfolder per class, the folder has its own
    split. Images in `test` are marked as test images. Images in `val` count as training images, from which each client
    draws its validation images.
    """
    path = folder_in("folder", argument, folder)
    parts, test = parts_of(path, path)
    if test is None:
        _check_classes(subfolders(path, path), path)
    images, labels, part, called = classified(path, parts, reading)
    return LabeledDataset(images, labels, class_names=called, test=None if test is None else torch.tensor(test)[part])


def parts_of(place: Path, root: Path) -> tuple[list[dict[str, list[Path]]], list[bool] | None]:
    """Return the image files by class of each part of a given split, and which of the parts are to test on.

    A folder without a given split is one part, and the second value is None.
    """
    inside = subfolders(place, root)
    if not is_given_split(inside) or any(files_in(each, root) or not subfolders(each, root) for each in inside):
        return [by_class(place, root)], None
    return [by_class(each, root) for each in inside], tested([each.name for each in inside])


def classified(
    root: Path, parts: Sequence[dict[str, list[Path]]], reading: Reading
) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Return the images, (M, C, H, W) uint8, of parts of a folder that each have files by class.

    Their labels and the numbers of their parts, (M,) int64 each, and the names of the classes follow.
    """
    names = in_order(set().union(*parts))
    found = [(file, names.index(name), part) for part, own in enumerate(parts) for name in own for file in own[name]]
    images, kept = photographs(root, [file for file, *_ in found], reading)
    labels, part = (torch.tensor([each[place] for each in found])[kept] for place in (1, 2))
    return images, labels, part, class_names(names, labels, root)


def _check_classes(places: list[Path], root: Path) -> None:
    """Reject a folder with one subfolder per client, because its clients would be read as classes.

    It is one if no subfolder directly contains images, and all contain subfolders of the same names.
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
    """Return of which parts of a given split, by name, the samples are to test on: of test, or of val without test."""
    lower = [name.lower() for name in names]
    chosen = TEST if TEST.intersection(lower) else VALIDATION
    return [name in chosen for name in lower]


def is_given_split(places: list[Path]) -> bool:
    """Return whether folders are named as the parts of a split: train and test or val."""
    names = {place.name.lower() for place in places}
    return bool(names & TRAIN) and len(names) > 1 and names <= TRAIN | VALIDATION | TEST


def unlabeled(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> tuple[Tensor, None]:
    """Return the images in a folder and in all folders below it, (N, C, H, W) uint8, which have no vocabulary."""
    path = folder_in("folder", argument, folder)
    files = files_below(path, path)
    if not files:
        raise InputError(f"{path} has no images ({', '.join(IMAGE_SUFFIXES)}): add some or correct the path.")
    return photographs(path, files, reading)[0], None


def by_class(place: Path, root: Path) -> dict[str, list[Path]]:
    """Return the image files in and below each subfolder of `place`; symbolic links must stay within `root`.

    The error for no subfolder, or one without images, names the other kind of folder where it is one.
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
    """Check that `file` is a file, and lies within `root`."""
    _check_inside(file, root)
    if not file.is_file():  # reading a pipe would wait for ever
        raise InputError(f"{file} is not a file that can be read (a folder, a pipe, a broken link): remove it.")


def _check_inside(path: Path, root: Path) -> None:
    """Check that no symbolic link leads out of the folder: a folder from elsewhere must not name files of yours."""
    target = Path(os.path.realpath(path))  # unlike Path.resolve, for a link to itself too
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(root)):
        raise InputError(f"{path} is a symbolic link out of its folder, to {target}: put a copy in its place.")
