"""A client's own file: who it is, where its samples are, and what its model is. It never leaves the client."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import torch
import yaml
from annotated_types import Ge, Le, Lt, MaxLen
from torch import Tensor

from ktpfl_pipeline import models
from ktpfl_pipeline.config.schema import Image
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import is_path
from ktpfl_pipeline.core.validation import Distinct, Reads, Share, default, parse
from ktpfl_pipeline.data.owned import MAX_NAME, OwnedDataset
from ktpfl_pipeline.data.partition.split import ClientIndices, least, split, stream
from ktpfl_pipeline.data.sources import Reading, adapt, load
from ktpfl_pipeline.data.sources.limits import MAX_CLASSES

Group = TypeVar("Group")


def _name(given: Any) -> Any:
    name = str(given) if type(given) is int else given
    if isinstance(name, str) and (len(name) > MAX_NAME or not name.isprintable()):
        raise ValueError(f"at most {MAX_NAME} printable characters")
    return name


Name = Annotated[str, Reads(_name)]
"""A name that tables can show."""
Names = Annotated[list[Name], MaxLen(MAX_CLASSES), Distinct()]
"""Names of classes, in the order of their labels."""


@dataclass(frozen=True)
class ClientFile:
    """The settings of a client's file.

    Attributes:
        client: its number in the federation, from 0; each client has a different one.
        name: its name in reports.
        source: its samples, as in an experiment: ``npz:mine.npz``, ``folder:my_images``. Relative paths start at the
            file's folder.
        owner: the client of the source whose samples are taken, if the source has several.
        classes: as ``private.classes`` of an experiment.
        class_names: what the labels 0, 1, … mean, the same list at all clients. Where the source has names of its own,
            such as folders, its labels are brought into this order; empty takes the source's names and order.
        image: channels and size that all clients' images have.
        architecture: of its model.
        test_share: share of its samples that is for testing.
        validation_share: share of the other samples that is for validation; 0 for none.
        device: where it computes.
        kept: the folder of the models that it keeps between rounds.
    """

    client: Annotated[int, Ge(0), Le(2**31 - 1)]
    source: str
    architecture: str
    name: Name = ""
    owner: str | None = None
    classes: list[int] | None = None
    class_names: Names = field(default_factory=list)
    image: Image | None = None
    test_share: Share = 0.25
    validation_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    device: str = "auto"
    kept: str = "kept"


def read(path: Path) -> ClientFile:
    """Return what stands in a client's file.

    Raises:
        InputError: if it cannot be read, or says something else.
    """
    return understood(ClientFile, values_of(path), str(path))


def understood(kind: type[Group], values: Mapping[str, Any], who: str) -> Group:
    """Return what `who` says as a `kind`: a file, or the other end of the wire.

    Raises:
        InputError: if it says too little, too much, or another thing.
    """
    needed = [entry.name for entry in fields(cast("Any", kind)) if default(entry) is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise InputError(f"{who} says nothing of {', '.join(missing)}: it must say {', '.join(needed)}.")
    return parse(kind, values, who)


def check_architecture(name: str, who: str) -> None:
    """Check that both ends know an architecture that `who` has: a client's names no code for the server to load.

    Raises:
        InputError: if it is a dotted path, or there is none of that name.
    """
    if is_path(name) and not models.is_family(name):
        raise InputError(
            f"{who} has the architecture {name!r}, and real clients name no code of their own: choose from "
            f"{', '.join(models.MODELS)}, or one of torchvision or timm, as in torchvision:resnet18."
        )
    try:
        models.find(name)
    except InputError as error:
        raise InputError(f"{who} has an architecture that is not there: {error}") from None


def values_of(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file.

    Raises:
        InputError: if there are none.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): correct the path.") from error
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} is no YAML ({' '.join(str(error).split())[:200]}): correct it.") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} has no settings: write them as in client: 0, a line each.")
    return {str(name): value for name, value in values.items()}


def samples(own: ClientFile, folder: Path) -> tuple[LabelledDataset, list[str]]:
    """Return the client's samples, images in the channels and size of the federation, and what their labels mean.

    Without names of classes in source and file, the labels themselves are the names.

    Raises:
        InputError: if they cannot be read, are of another client too, or are features, which clients would have to be
            standardised together.
    """
    size = None if own.image is None else own.image.shape[1:]
    found = load(own.source, folder, own.classes, Reading(size))
    if isinstance(found, OwnedDataset):
        found = _of_owner(found, own)
    elif own.owner is not None:
        raise InputError(f"owner is {own.owner!r}, and {own.source} does not say whose its samples are: leave it out.")
    if not found.kind.pixels:
        raise InputError(
            f"{own.source} has {found.kind.name}; a federation standardizes features over all clients' samples, and "
            "real clients share none of theirs: take images."
        )
    inputs = found.inputs if own.image is None else adapt(found.inputs, own.image.shape)
    labels, names = _in_order(found, own)
    return replace(found, inputs=inputs, labels=labels), names


def _in_order(found: LabelledDataset, own: ClientFile) -> tuple[Tensor, list[str]]:
    """Return labels in the order of the file's class names, and the names.

    Raises:
        InputError: if the source has a class that the file does not name.
    """
    of_source, wanted = list(getattr(found, "class_names", None) or ()), own.class_names
    used = [of_source[label] if of_source else str(label) for label in sorted(set(found.labels.tolist()))]
    if not wanted:
        return found.labels, of_source or [str(label) for label in range(int(found.labels.max()) + 1)]
    if not of_source and int(found.labels.max()) < len(wanted):
        return found.labels, wanted
    if odd := [name for name in used if name not in wanted]:
        raise InputError(
            f"class_names is {', '.join(wanted)}, and {own.source} has samples of class {odd[0]!r} too: add it to "
            "class_names, at all clients."
        )
    places = torch.tensor([wanted.index(name) if name in wanted else -1 for name in of_source])
    return places[found.labels], wanted


def splits(own: ClientFile, found: LabelledDataset, seed: int) -> tuple[LabelledDataset, ...]:
    """Return what is trained, validated and tested on, as the scheme ``natural`` splits them for this client.

    Raises:
        InputError: if there are too few samples.
    """
    tested = found.test if isinstance(found, OwnedDataset) else None
    indices: ClientIndices = split(
        torch.arange(len(found)).numpy(),
        found.labels.numpy(),
        own.test_share,
        own.validation_share,
        stream(seed, "split", own.client),
        None if tested is None else tested.numpy(),
    )
    if len(indices.train) < 2 or not len(indices.test) or (own.validation_share and not len(indices.validation)):
        raise InputError(f"{own.source} has {len(found)} samples, and {least(own.validation_share)}: find more.")
    return tuple(LabelledDataset(found.inputs[part], found.labels[part]) for part in indices)


def _of_owner(found: OwnedDataset, own: ClientFile) -> OwnedDataset:
    names = list(found.names)
    if own.owner not in names:
        raise InputError(
            f"{own.source} has samples of {', '.join(names[:10])}: say with owner: which of them this client is, or "
            "give it a file of its own."
        )
    return found.take((found.owners == names.index(own.owner)).nonzero().flatten())
