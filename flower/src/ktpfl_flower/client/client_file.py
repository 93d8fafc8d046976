"""A client's file: its number, its samples and its architecture. The file never leaves the client."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import torch
import yaml
from annotated_types import Gt, MaxLen
from torch import Tensor

from ktpfl_flower.alike import Data, prepared
from ktpfl_pipeline import models
from ktpfl_pipeline.config.schema import Image
from ktpfl_pipeline.config.values import load as load_yaml
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.extensions import is_path
from ktpfl_pipeline.core.validation import Distinct, Natural, Part, Reads, Share, default, parse
from ktpfl_pipeline.data.owned import MAX_NAME, OwnedDataset
from ktpfl_pipeline.data.partition import ClientIndices
from ktpfl_pipeline.data.partition.split import is_whole, least, split, stream
from ktpfl_pipeline.data.settings import Partition, Text
from ktpfl_pipeline.data.sources import Reading, load
from ktpfl_pipeline.data.sources.files import MAX_CLASSES
from ktpfl_pipeline.data.standardization import Standardization
from ktpfl_pipeline.models import zoo

Group = TypeVar("Group")


def _name(given: Any) -> Any:
    name = str(given) if type(given) is int else given
    if isinstance(name, str) and (len(name) > MAX_NAME or not name.isprintable()):
        raise ValueError(f"at most {MAX_NAME} printable characters")
    return name


Name = Annotated[str, Reads(_name)]
"""A name that fits into a table."""
Names = Annotated[list[Name], MaxLen(MAX_CLASSES), Distinct()]
"""Names of classes, in the order of their labels."""


@dataclass(frozen=True)
class ClientFile:
    """The settings of a client's file.

    Attributes:
        client: the client's number, from 0; each client has a different one.
        name: the client's name in reports.
        source: the samples, as in an experiment: ``npz:mine.npz``, ``folder:my_images``. Relative paths start at the
            file's folder.
        owner: whose samples of the source this client has, if the source has several owners.
        classes: as ``private.classes`` of an experiment.
        class_names: the names of the labels 0, 1, …, the same list at all clients. If the source names its classes,
            for example by folders, labels are renumbered in the order of the list. Otherwise labels are positions in
            the list, from 0. An empty list keeps the source's names and order.
        image: the format of the images, as in an experiment; channels and size are the same at all clients.
        text: how the texts of ``text:<file.csv>`` become tokens, as in an experiment; the tokenizer is a file, the same
            at all clients.
        architecture: the architecture of the client's model.
        test_share: the share of the samples for testing.
        validation_share: the share of the other samples for validation; 0: none.
        epsilon: the largest ε that the client spends for its samples, in all runs together. With it, the client only
            takes part in runs with private training. None: no limit.
        device: the device on which the client computes.
        kept: the folder in which the client stores its models between rounds.
    """

    client: Natural
    source: str
    architecture: str
    name: Name = ""
    owner: str | None = None
    classes: list[int] | None = None
    class_names: Names = field(default_factory=list)
    image: Image | None = None
    text: Text = field(default_factory=Text)
    test_share: Share = Partition.test_share
    validation_share: Part = Partition.validation_share
    epsilon: Annotated[float, Gt(0)] | None = None
    device: str = "auto"
    kept: str = "kept"


def read(kind: type[Group], path: Path) -> Group:
    """Return the settings in a YAML file.

    Raises:
        InputError: if the file cannot be read, is not YAML, or a setting is missing, unknown or not allowed.
    """
    try:
        values = load_yaml(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}). Correct the path.") from error
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be read. Write one setting per line.") from None
    except (ValueError, yaml.YAMLError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not valid YAML ({' '.join(str(error).split())[:200]}). Correct it.") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} has no settings. Write one per line, for example client: 0.")
    return understood(kind, {str(name): value for name, value in values.items()}, str(path))


def understood(kind: type[Group], values: Mapping[str, Any], who: str) -> Group:
    """Return the values of a file or a message as a group of settings.

    Raises:
        InputError: if a value is missing, unknown or not allowed; it names the file or the sender, `who`.
    """
    needed = [entry.name for entry in fields(cast("Any", kind)) if default(entry) is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise InputError(f"{who} lacks {', '.join(missing)}; required are {', '.join(needed)}.")
    return parse(kind, values, who)


def check_architecture(name: str, who: str) -> None:
    """Check that an architecture is part of this project, torchvision or timm.

    A client must not make the server load code or read a folder.

    Raises:
        InputError: if it is a dotted path or a folder, or does not exist; the message names `who`.
    """
    if name.partition(":")[0] not in zoo.FAMILIES and (is_path(name) or models.is_family(name)):
        raise InputError(
            f"{who} has the architecture {name!r}, but real clients cannot use code or folders of their own. Choose "
            f"{', '.join(models.MODELS)}, or an architecture of torchvision or timm, such as torchvision:resnet18."
        )
    try:
        models.find(name)
    except InputError as error:
        raise InputError(f"{who} has an unknown architecture: {error}") from None


def samples(own: ClientFile, folder: Path) -> tuple[LabeledDataset, list[str], Data]:
    """Return the client's samples, the names of their classes, and the `Data` that the server compares.

    Without names of classes in the source and the file, the labels are the names.

    Raises:
        InputError: if the samples cannot be read, the file does not state which owner's samples are the client's, or
            real clients cannot use them; see `prepared`.
    """
    found = load(own.source, folder, own.classes, Reading.of(own.image, own.text))
    if isinstance(found, OwnedDataset):
        names = list(found.names)
        if own.owner not in names:
            raise InputError(
                f"{own.source} has samples of {', '.join(names[:10])}. Set owner to the one that is this client, or "
                "use a source with only this client's samples."
            )
        found = found.take((found.owners == names.index(own.owner)).nonzero().flatten())
    elif own.owner is not None:
        raise InputError(
            f"owner is {own.owner!r}, but {own.source} does not name the owners of its samples. Remove owner."
        )
    inputs, data = prepared(found.inputs, found.vocabulary, own.source, own.image, found.columns)
    labels, class_names = _in_order(found, own)
    return replace(found, inputs=inputs, labels=labels), class_names, data


def _in_order(found: LabeledDataset, own: ClientFile) -> tuple[Tensor, list[str]]:
    """Return labels in the order of the file's class names, (M,) int64, and the names.

    Raises:
        InputError: if the source has a class that the file does not name.
    """
    of_source, wanted = list(getattr(found, "class_names", None) or ()), own.class_names
    used = sorted(set(found.labels.tolist()))
    if not wanted:
        return found.labels, of_source or [str(label) for label in range(used[-1] + 1)]
    if not of_source:
        if beyond := [label for label in used if label >= len(wanted)]:
            raise InputError(
                f"class_names has {plural(len(wanted), 'name')}, for the labels from 0 to {len(wanted) - 1}, but "
                f"{own.source} also has label {beyond[0]}. Number the labels from 0, or add names to "
                "class_names at all clients."
            )
        return found.labels, wanted
    if odd := [name for name in (of_source[label] for label in used) if name not in wanted]:
        raise InputError(
            f"class_names is {', '.join(wanted)}, but {own.source} also has samples of class {odd[0]!r}. Add it to "
            "class_names at all clients."
        )
    places = torch.tensor([wanted.index(name) if name in wanted else -1 for name in of_source])
    return places[found.labels], wanted


def indices_of(own: ClientFile, found: LabeledDataset, seed: int) -> ClientIndices:
    """Return the indices of the samples for each split, as the partition ``natural`` splits them.

    Raises:
        InputError: if there are too few samples.
    """
    how = Partition(test_share=own.test_share, validation_share=own.validation_share)
    draw = stream(seed, "split", own.client)
    indices = split(torch.arange(len(found)).numpy(), found.labels, how, draw, found.test, found.groups)
    if not is_whole(indices, how):
        raise InputError(f"{own.source} has {plural(len(found), 'sample')}, but {least(how)}. Add samples.")
    return indices


def splits(
    own: ClientFile, found: LabeledDataset, seed: int, scale: Standardization | None = None
) -> tuple[LabeledDataset, ...]:
    """Return the samples for training, validation and testing, standardized by `scale`; see `indices_of`."""
    inputs = found.inputs if scale is None else scale(found.inputs)
    parts = indices_of(own, found, seed)
    return tuple(LabeledDataset(inputs[part], found.labels[part], vocabulary=found.vocabulary) for part in parts)
