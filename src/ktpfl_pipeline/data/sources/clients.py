"""The source `clients`: a folder with one subfolder per client."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.resources import check_claim
from ktpfl_pipeline.data.owned import OwnedDataset, client_names, groups_of
from ktpfl_pipeline.data.sources import npz
from ktpfl_pipeline.data.sources.arguments import folder_in
from ktpfl_pipeline.data.sources.features import Extent, check_told_apart
from ktpfl_pipeline.data.sources.folder import check_file, classified, is_given_split, parts_of, subfolders, unlabeled
from ktpfl_pipeline.data.sources.labels import in_order
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, PUBLIC, Reading, warn_of_skipped
from ktpfl_pipeline.data.sources.tokens import agreed


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> OwnedDataset:
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
    if not files[places[0]]:
        return _from_images(root, names, places, reading)
    return _from_arrays(root, names, list(files.values()))


def included(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tensor:
    """Return the public inputs, (M, ...), from the folder `public` or the file `public.npz`."""
    root = folder_in("clients", argument, folder)
    if (root / f"{PUBLIC}.npz").is_file():
        check_file(root / f"{PUBLIC}.npz", root)
        return npz.unlabeled(f"{PUBLIC}.npz", root, reading)[0]
    if any(place.name == PUBLIC for place in subfolders(root, root)):
        return unlabeled(PUBLIC, root, reading)[0]
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


def _from_images(root: Path, names: tuple[str, ...], places: Sequence[Path], reading: Reading) -> OwnedDataset:
    """Return the images in the clients' folders. Images of test folders are marked as test samples."""
    found = [parts_of(place, root) for place in places]
    if odd := next((place for place, (_, test) in zip(places, found, strict=True) if not test), None):
        given = next((place for place, (_, test) in zip(places, found, strict=True) if test), None)
        if given:
            raise InputError(
                f"{given} has a given split, such as train and test, and {odd} has not: give all clients the same"
                " folders."
            )
    parts = [part for own, _ in found for part in own]
    images, labels, part, called = classified(root, parts, reading)
    owners = torch.tensor([n for n, (own, _) in enumerate(found) for _ in own])[part]
    tests = [test for _, own in found for test in own or ()]
    return OwnedDataset(
        images, labels, owners, names, test=torch.tensor(tests)[part] if tests else None, class_names=called
    )


def _from_arrays(root: Path, names: tuple[str, ...], clients: list[list[Path]]) -> OwnedDataset:
    """Return the samples in the clients' `.npz` files. Samples of ``test.npz`` are marked as test samples."""
    files = [file for own in clients for file in own]
    warn_of_skipped(root, files)
    check_claim(root, sum(map(npz.claim, files)), "take fewer clients or samples")
    extents: list[Extent] = []
    parts = [npz.read(file, extents) for file in files]
    for file, part in zip(files, parts, strict=True):
        if isinstance(part, OwnedDataset):
            raise InputError(f"{file} has an array 'clients', but belongs to a single client: leave the array out.")
        if (one := kinds.described(part.inputs)) != (other := kinds.described(parts[0].inputs)):
            raise InputError(
                f"{file} has {one} and {files[0]} has {other}: save the samples of all clients in the same form."
            )
        if (part.class_names is None) != (parts[0].class_names is None):
            named, unnamed = (file, files[0]) if part.class_names else (files[0], file)
            raise InputError(
                f"{named} names its classes and {unnamed} does not: save the array 'classes' in all files, or in none."
            )
    check_told_apart(extents, lambda column: f"column {column} (from 0) of the features of the clients in {root}")
    known = agreed((part.vocabulary for part in parts), files.__getitem__)
    called = _agreed([part.class_names for part in parts if part.class_names])
    sizes = torch.tensor([len(part) for part in parts])
    counts = torch.tensor([len(own) for own in clients])
    inputs = torch.cat([part.inputs for part in parts])
    labels = torch.cat([_renumbered(part, called) for part in parts])
    test = torch.tensor([file.name == "test.npz" for file in files]).repeat_interleave(sizes)
    owners = torch.arange(len(names)).repeat_interleave(counts).repeat_interleave(sizes)
    common: dict[str, Any] = {"class_names": called, "vocabulary": known, "columns": parts[0].columns}
    if len(grouped := [part.groups for part in parts if part.groups is not None]) == len(parts):
        common["groups"] = groups_of(torch.cat(grouped).numpy(), owners)
    elif grouped:
        raise InputError(f"{root} has an array 'groups' in some files only: save it for all clients, or for none.")
    return OwnedDataset(inputs, labels, owners, names, test=test if test.any() else None, **common)


def _agreed(named: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the names of all classes: the list of a file if all lists are equal, otherwise all names, `in_order`."""
    if not named:
        return None
    return named[0] if len(set(named)) == 1 else tuple(in_order(set().union(*named)))


def _renumbered(part: LabeledDataset, names: tuple[str, ...] | None) -> Tensor:
    """Return a client's labels, (n,), as indices into `names`, so that a class has the same number at all clients."""
    if names is None or part.class_names in (None, names):
        return part.labels
    return torch.tensor([names.index(name) for name in part.class_names or ()])[part.labels]
