"""The source `folder`: image files in one subfolder per class, or without labels."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import composed
from ktpfl_pipeline.data.sources.files import IMAGE_SUFFIXES, files_below, files_in, folder_in, subfolders
from ktpfl_pipeline.data.sources.parts import Part, joined
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading, photographs

TRAIN, VALIDATION, TEST = {"train", "training"}, {"val", "valid", "validation"}, {"test", "testing"}
"""Names, in lower case, of the folders for training, validation and test samples."""
SIZED = True


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
    rows = rows_of(path, path)
    if rows[0].test is None:
        _check_classes(subfolders(path, path), path)
    return joined(path, [part_of(path, rows, reading)])


class Row(NamedTuple):
    """An image file, its class, and whether it is a test sample; None if the folder has no given split."""

    file: Path
    label: str
    test: bool | None


def rows_of(place: Path, root: Path) -> list[Row]:
    """Return the image files of a folder with a subfolder per class, or with a given split of such folders."""
    inside = subfolders(place, root)
    if not is_given_split(inside) or any(files_in(each, root) or not subfolders(each, root) for each in inside):
        return [Row(file, name, None) for name, files in by_class(place, root).items() for file in files]
    return [
        Row(file, name, test)
        for part, test in zip(inside, tested([each.name for each in inside]), strict=True)
        for name, files in by_class(part, root).items()
        for file in files
    ]


def part_of(root: Path, rows: Sequence[Row], reading: Reading, clients: Sequence[int] | None = None) -> Part:
    """Read the images of a folder; `clients` has the number of each image's owner."""
    images, kept = photographs(root, [row.file for row in rows], reading)
    test = None if rows[0].test is None else [bool(row.test) for row in rows]
    return Part(root, images, [row.label for row in rows], clients, test, kept=kept)


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
