"""Sources of samples: downloaded datasets, and the user's files and folders.

`SOURCES` is the registry. A source outside this package is named by its dotted path,
``my_package.sources:load_csv:argument``. Every source returns all its samples: images in uint8 with their original
channels, features in float32, or tokens in int64. Sources that know the owner of each sample return an `OwnedDataset`.
`adapt` converts images to the channels and size of a federation.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core import extensions
from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError, unknown, used_up
from ktpfl_pipeline.data.sources import clients, digits, downloads, folder, leaf, npz, table, text
from ktpfl_pipeline.data.sources.adaptation import adapt
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.returned import check_returned

__all__ = ["SOURCES", "Reading", "Source", "adapt", "find", "load", "load_public", "load_with_vocabulary"]

Source = Callable[[str, Path], LabeledDataset]
"""``source(argument, folder)``: the argument after the colon, and the folder of downloads and of relative paths."""

SOURCES: dict[str, Source] = {
    "digits": digits.load,
    "cifar10": partial(downloads.load, "CIFAR10"),
    "cifar100": partial(downloads.load, "CIFAR100"),
    "mnist": partial(downloads.load, "MNIST"),
    "fashion_mnist": partial(downloads.load, "FashionMNIST"),
    "emnist": downloads.load_emnist,  # emnist:<split>, letters by default
    "npz": npz.load,  # npz:<path>
    "folder": folder.load,  # folder:<path>
    "clients": clients.load,  # clients:<path>
    "leaf": leaf.load,  # leaf:<path>
    "table": table.load,  # table:<path>
    "text": text.load,  # text:<path>
}
INCLUDED: dict[str, Callable[..., Tensor]] = {
    "npz": npz.included,
    "clients": clients.included,
    "text": text.included,
}
"""Sources that may contain public inputs besides the private samples, for ``public.source: included``."""
UNLABELLED: dict[str, Callable[..., tuple[Tensor, Vocabulary | None]]] = {
    "npz": npz.unlabeled,
    "folder": folder.unlabeled,
    "table": table.unlabeled,
    "text": text.unlabeled,
}
"""Functions that return a source's inputs without labels, for public samples, and the vocabulary of tokens."""
SIZED = (folder.load, clients.load, table.load)
"""Sources that read image files, which may have several sizes."""
FILES = {".npz": ("npz",), ".csv": ("table", "text"), ".json": ("leaf",)}
"""The sources that read one file, by the file's suffix."""

PATH = re.compile(r"(?P<path>\w+(?:\.\w+)+:\w+)(?::(?P<argument>.*))?", re.DOTALL)
"""The dotted path and the argument of a source outside this package. A dot distinguishes it from ``name:argument``."""


def of_file(name: str) -> str:
    """Return how to write a file as a source, such as ``'npz:mine.npz'``; empty if no source reads such files."""
    kinds = () if ":" in name else FILES.get(Path(name).suffix, ())
    return " or ".join(repr(f"{kind}:{name}") for kind in kinds)


def find(source: str) -> tuple[Source, str]:
    """Return the function and the argument of a source, given as for `load`. Raises InputError if it is unknown."""
    name, _, argument = source.partition(":")
    if name in SOURCES:
        return SOURCES[name], argument
    if not (own := PATH.fullmatch(source)):
        if meant := of_file(source):
            raise InputError(f"source {source!r} is unknown: a file of your own is given as {meant}.")
        raise unknown("source", source, SOURCES)
    function: Source = extensions.load(own["path"], "source")
    if not callable(function):
        raise InputError(
            f"{own['path']!r} is not a source: it must be a function (argument, folder) that returns a LabeledDataset."
        )
    return function, own["argument"] or ""


def load(
    source: str, folder: Path, classes: Sequence[int] | None = None, reading: Reading = AS_THEY_ARE
) -> LabeledDataset:
    """Return all labeled samples of a source: an `OwnedDataset` if the source knows the owner of each sample.

    Args:
        source: a name of `SOURCES`, or ``"name:argument"``: ``"emnist:balanced"``, ``"npz:my/images.npz"``; or a dotted
            path with or without an argument, ``"my_package.sources:load_csv:mine.csv"``.
        folder: where datasets are downloaded to and where relative paths start (the project's `data/01_raw`).
        classes: keep only the samples of these classes, renumbered 0, 1, ... in this order; None keeps all.
        reading: how image files and texts are read.

    The paper's EMNIST task, letters A to J, is ``load("emnist:letters", raw, classes=range(10))``.

    Raises:
        InputError: if the source or a class is unknown, a file cannot be used, a download fails, or a source outside
            this package raises an error.
    """
    function, argument = find(source)
    samples: LabeledDataset
    if own := PATH.fullmatch(source):
        samples = check_returned(_called(own["path"], function, argument, folder, reading), source)
    else:
        samples = _read(function, argument, folder, reading)
    return samples if classes is None else _keep(samples, classes, source)


def load_public(source: str, private: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tensor:
    """Return the inputs of a public source, (M, ...). Arguments and errors are as for `load`.

    The source does not need labels. For the source ``"included"``, the function returns the public inputs that the
    source `private` contains.
    """
    if source != "included":
        return load_with_vocabulary(source, folder, reading)[0]
    name, _, argument = private.partition(":")
    if name not in INCLUDED:
        raise InputError(
            f"public.source is 'included' and the private source {private!r} brings no public inputs, as npz:<file>,"
            " clients:<folder> and text:<file> may: choose open_part or another source."
        )
    inputs: Tensor = _read(INCLUDED[name], argument, folder, reading)
    return inputs


def load_with_vocabulary(source: str, folder: Path, reading: Reading = AS_THEY_ARE) -> tuple[Tensor, Vocabulary | None]:
    """Return the inputs of a public source, (M, ...), and the vocabulary of tokens; None if they are not tokens."""
    name, _, argument = source.partition(":")
    if name in UNLABELLED:
        found: tuple[Tensor, Vocabulary | None] = _read(UNLABELLED[name], argument, folder, reading)
        return found
    labeled = load(source, folder, reading=reading)
    return labeled.inputs, labeled.vocabulary


def missing(source: str, folder: Path) -> str:
    """Return, as text, the missing archives of a source and the folders for them; empty if no archive is missing."""
    function = find(source)[0]
    if isinstance(function, partial) and function.func is downloads.load:
        return downloads.missing(function.args[0], folder)
    return downloads.missing("EMNIST", folder) if function is downloads.load_emnist else ""


def sized(source: str) -> bool:
    """Return whether a source, given as for `load`, reads image files, which may have several sizes."""
    return find(source)[0] in SIZED


def _read(function: Callable[..., Any], argument: str, folder: Path, reading: Reading) -> Any:
    """Call a function of a source, with `reading` if the function has this parameter."""
    told = "reading" in inspect.signature(function).parameters
    return function(argument, folder, reading) if told else function(argument, folder)


def _called(path: str, function: Source, argument: str, folder: Path, reading: Reading) -> Any:
    """Call the function at a dotted path. Its errors, except for exhausted memory, are raised as InputError."""
    try:
        return _read(function, argument, folder, reading)
    except InputError:
        raise
    except Exception as error:
        if used_up(error):
            raise
        reason = extensions.raised(error, path)
        raise InputError(
            f"The source {path!r}, given {argument!r}, raised {reason}: correct it there, or what it reads."
        ) from error


def _keep(samples: LabeledDataset, classes: Sequence[int], source: str) -> LabeledDataset:
    """Return the samples of `classes`, renumbered in the order of `classes`. The samples stay in their order."""
    present = np.unique(samples.labels.numpy()).tolist()
    unknown = [label for label in classes if label not in present]
    if unknown:
        raise InputError(
            f"class {unknown[0]} is not in source {source!r}: `classes` may name {_ranges(present)}. Leave `classes` "
            "out"
            " to keep all classes."
        )
    if not classes or len(set(classes)) < len(classes):
        raise InputError(f"`classes` is {list(classes)}; it must name at least one class, and each class once.")
    renumbered = torch.full((present[-1] + 1,), -1)
    renumbered[torch.tensor(list(classes))] = torch.arange(len(classes))
    kept = renumbered[samples.labels] >= 0
    taken = samples.take(kept.nonzero().flatten())
    names = samples.class_names and tuple(samples.class_names[label] for label in classes)
    return replace(taken, labels=renumbered[taken.labels], class_names=names)


def _ranges(numbers: list[int]) -> str:
    """Return sorted `numbers` as text: ``0 to 9``, or a list if they are not consecutive."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return textwrap.shorten(", ".join(str(number) for number in numbers), 120, placeholder=" ...")
