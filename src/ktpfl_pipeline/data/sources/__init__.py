"""Sources of samples: downloaded datasets, and the user's files and folders.

`data.registry.SOURCES` names the module of each. A source outside this package is named by its dotted path,
``my_package.sources:load_csv:argument``. Every source returns all its samples: images in uint8 with their original
channels, features in float32, or tokens in int64. Sources that know the owner of each sample return an `OwnedDataset`.
`adapt` converts images to the channels and size of a federation.

The module of a source has ``load(argument, folder, reading)``. If it can do more, it has ``unlabeled``, with the same
arguments, which returns inputs without labels, for public samples, and the vocabulary of tokens; ``included``, which
returns public inputs that it contains besides the private samples; and ``SIZED = True`` if it reads image files, which
may have several sizes.
"""

import importlib
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
from ktpfl_pipeline.core.errors import InputError, used_up
from ktpfl_pipeline.data.registry import SOURCES, split
from ktpfl_pipeline.data.sources.adaptation import adapt
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading
from ktpfl_pipeline.data.sources.returned import check_returned

__all__ = ["Reading", "Source", "adapt", "find", "load", "load_public", "load_with_vocabulary"]

Source = Callable[[str, Path], LabeledDataset]
"""``source(argument, folder)``: the argument after the colon, and the folder of downloads and of relative paths."""


def find(source: str) -> tuple[Callable[..., Any], str]:
    """Return the function and the argument of a source, given as for `load`. Raises InputError if it is unknown."""
    name, argument = split(source)
    if name in SOURCES:
        dataset = SOURCES[name].partition(":")[2]
        function = reader(name).load
        return (partial(function, dataset) if dataset else function), argument
    own: Source = extensions.load(name, "source")
    if not callable(own):
        raise InputError(
            f"{name!r} is not a source: it must be a function (argument, folder) that returns a LabeledDataset."
        )
    return own, argument


def reader(name: str) -> Any:
    """Return the module of a source of this package; None for a dotted path."""
    module = SOURCES.get(name, "").partition(":")[0]
    return importlib.import_module(f"{__name__}.{module}") if module else None


def load(
    source: str, folder: Path, classes: Sequence[int] | None = None, reading: Reading = AS_THEY_ARE
) -> LabeledDataset:
    """Return all labeled samples of a source: an `OwnedDataset` if the source knows the owner of each sample.

    Args:
        source: a name, or ``"name:argument"``: ``"emnist:balanced"``, ``"npz:my/images.npz"``; or a dotted path with
            or without an argument, ``"my_package.sources:load_csv:mine.csv"``.
        folder: where datasets are downloaded to and where relative paths start (the project's `data/01_raw`).
        classes: keep only the samples of these classes, renumbered 0, 1, ... in this order; None keeps all.
        reading: how image files and texts are read.

    The paper's EMNIST task, letters A to J, is ``load("emnist:letters", raw, classes=range(10))``.

    Raises:
        InputError: if the source or a class is unknown, a file cannot be used, a download fails, or a source outside
            this package raises an error.
    """
    function, argument = find(source)
    name = split(source)[0]
    samples: LabeledDataset
    if name in SOURCES:
        samples = function(argument, folder, reading)
    else:
        samples = check_returned(_called(name, function, argument, folder), source)
    return samples if classes is None else _keep(samples, classes, source)


def load_public(source: str, private: str, folder: Path, reading: Reading = AS_THEY_ARE) -> Tensor:
    """Return the inputs of a public source, (M, ...). Arguments and errors are as for `load`.

    The source does not need labels. For the source ``"included"``, the function returns the public inputs that the
    source `private` contains.
    """
    if source != "included":
        return load_with_vocabulary(source, folder, reading)[0]
    name, argument = split(private)
    if not hasattr(module := reader(name), "included"):
        raise InputError(
            f"public.source is 'included' and the private source {private!r} brings no public inputs, as npz:<file>,"
            " clients:<folder> and text:<file> may: choose open_part or another source."
        )
    inputs: Tensor = module.included(argument, folder, reading)
    return inputs


def load_with_vocabulary(source: str, folder: Path, reading: Reading = AS_THEY_ARE) -> tuple[Tensor, Vocabulary | None]:
    """Return the inputs of a public source, (M, ...), and the vocabulary of tokens; None if they are not tokens."""
    name, argument = split(source)
    if hasattr(module := reader(name), "unlabeled"):
        found: tuple[Tensor, Vocabulary | None] = module.unlabeled(argument, folder, reading)
        return found
    labeled = load(source, folder, reading=reading)
    return labeled.inputs, labeled.vocabulary


def missing(source: str, folder: Path) -> str:
    """Return, as text, the missing archives of a source and the folders for them; empty if no archive is missing."""
    name, _ = split(source)
    dataset = SOURCES.get(name, "").partition(":")[2]
    found: str = reader(name).missing(dataset, folder) if dataset else ""
    return found


def sized(source: str) -> bool:
    """Return whether a source, given as for `load`, reads image files, which may have several sizes."""
    return getattr(reader(split(source)[0]), "SIZED", False)


def _called(path: str, function: Source, argument: str, folder: Path) -> Any:
    """Call the function at a dotted path. Its errors, except for exhausted memory, are raised as InputError."""
    try:
        return function(argument, folder)
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
            "out to keep all classes."
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
