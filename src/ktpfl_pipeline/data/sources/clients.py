"""The source `clients`: a folder with one subfolder per client."""

from pathlib import Path

import numpy as np
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.resources import check_claim
from ktpfl_pipeline.data.owned import client_names
from ktpfl_pipeline.data.sources import folder as folders
from ktpfl_pipeline.data.sources import npz
from ktpfl_pipeline.data.sources.files import check_file, folder_in, subfolders
from ktpfl_pipeline.data.sources.folder import is_given_split, part_of, rows_of
from ktpfl_pipeline.data.sources.parts import Part, joined
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, PUBLIC, Reading, warn_of_skipped

SIZED = True


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the samples of all clients. Clients are numbered in the order of the sorted names of their subfolders.

    All subfolders must have the same layout, which is one of these:
        A subfolder of images per class. Classes are numbered by the names of all clients' subfolders, see `in_order`.
        The folders `train`, `test` and optionally `val`, each with a subfolder per class, as for the source `folder`.
        The file ``data.npz``, with labels and images, features or tokens, as for the source `npz`.
        The files ``train.npz`` and ``test.npz``. The samples of the second file are test samples.

    A subfolder named `public` is not a client; see `included`. Raises InputError if the folder has another layout, or a
    file cannot be used.
    """
    root = folder_in("clients", argument, folder)
    places = [place for place in subfolders(root, root) if place.name != PUBLIC]
    if not places:
        raise InputError(f"{root} has no subfolders: put the files of each client into a subfolder of its own.")
    if is_given_split(places):
        raise InputError(
            f"{root} has the folders {', '.join(place.name for place in places)}, which are parts of a split, not"
            " clients: write folder: for clients:, which keeps the split and deals its images out to clients."
        )
    names = client_names((place.name for place in places), root)
    files = {place: _arrays(place, root) for place in places}
    for place in places:
        forms = [" and ".join(file.name for file in files[each]) or "no arrays" for each in (place, places[0])]
        if forms[0] != forms[1]:
            raise InputError(f"{place} has {forms[0]} and {places[0]} has {forms[1]}: give all clients the same files.")
    parts = _parts_of_arrays(root, [*files.values()]) if files[places[0]] else [_part_of_images(root, places, reading)]
    return joined(root, parts, names)


def included(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tensor:
    """Return the public inputs, (M, ...), from the folder `public` or the file `public.npz`."""
    root = folder_in("clients", argument, folder)
    if (root / f"{PUBLIC}.npz").is_file():
        check_file(root / f"{PUBLIC}.npz", root)
        return npz.unlabeled(f"{PUBLIC}.npz", root, reading)[0]
    if any(place.name == PUBLIC for place in subfolders(root, root)):
        return folders.unlabeled(PUBLIC, root, reading)[0]
    raise InputError(
        f"{root} has no folder 'public' and no 'public.npz', which public.source: included needs: add one of them, or"
        " choose another public.source, such as open_part."
    )


def _arrays(place: Path, root: Path) -> list[Path]:
    """Return the `.npz` files of a client: one with all samples, or one each for training and test, or none."""
    both = [place / "train.npz", place / "test.npz"]
    found = [file for file in (place / "data.npz", *both) if file.exists() or file.is_symlink()]
    for file in found:
        check_file(file, root)
    if found not in ([], [place / "data.npz"], both):
        raise InputError(
            f"{place} has {' and '.join(file.name for file in found)}: a client has only data.npz, or train.npz and"
            " test.npz."
        )
    return found


def _part_of_images(root: Path, places: list[Path], reading: Reading) -> Part:
    """Return the images in the clients' folders. Images of test folders are marked as test samples."""
    rows = [(client, row) for client, place in enumerate(places) for row in rows_of(place, root)]
    given, odd = (next((n for n, row in rows if (row.test is None) is none), None) for none in (False, True))
    if given is not None and odd is not None:
        raise InputError(
            f"{places[given]} has a given split, such as train and test, and {places[odd]} has not: give all clients "
            "the same folders."
        )
    return part_of(root, [row for _, row in rows], reading, [client for client, _ in rows])


def _parts_of_arrays(root: Path, clients: list[list[Path]]) -> list[Part]:
    """Return the samples in the clients' `.npz` files. Samples of ``test.npz`` are marked as test samples."""
    files = [(client, file) for client, own in enumerate(clients) for file in own]
    warn_of_skipped(root, [file for _, file in files])
    check_claim(root, sum(npz.claim(file) for _, file in files), "take fewer clients or samples")
    parts = []
    for client, file in files:
        part = npz.part(file)
        if part.clients is not None:
            raise InputError(f"{file} has an array 'clients', but belongs to a single client: leave the array out.")
        test = np.full(len(part.inputs), file.name == "test.npz") if len(clients[0]) > 1 else None
        parts.append(part._replace(clients=np.full(len(part.inputs), client), test=test))
    return parts
