"""Samples that are given in Python, in the form of an ``.npz`` file, so that one reader checks all arrays."""

from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, listed
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.sources import npz

REREAD = 16
"""The samples of a dataset of torch that are read twice, to find random transforms."""


def stored(data: Any, folder: Path) -> str:
    """Write samples that are given in Python to an ``.npz`` file, and return its source."""
    file = folder / "data.npz"
    np.savez(file, **_arrays(data))
    return f"npz:{file}"


def check_meant(data: Any, source: str) -> None:
    """Raise InputError if samples that `stored` wrote are integers, (N, F), which may be a table or ids of texts."""
    found = npz.names(source.removeprefix("npz:"), Path())
    if "tokens" in found and "vocabulary" not in found and not isinstance(data, Mapping):
        raise InputError(
            "The inputs are integers, (N, F), which may be a table of integers or texts as ids of tokens. Give a "
            "table as floats, inputs.astype('float32'). Give texts as {'tokens': inputs, 'labels': labels}, or choose "
            "architectures for texts, such as text_cnn."
        )


def _arrays(data: Any) -> dict[str, Any]:
    """Return samples as the arrays of an ``.npz`` file. Raises InputError if they are of another form."""
    if isinstance(data, Mapping):
        return {name: _array(each, name) for name, each in data.items()}
    if isinstance(data, LabeledDataset):
        owned = {"clients": np.array(data.names)[data.owners]} if isinstance(data, OwnedDataset) else {}
        named = {} if data.class_names is None else {"classes": np.array(data.class_names)}
        fill = None if data.fill is None or data.fill.dim() > 1 else data.fill
        others: dict[str, Any] = {"groups": data.groups, "columns": data.columns, "fill": fill, "test": data.test}
        if (known := data.vocabulary) is not None:
            words = known.words or [str(number) for number in range(known.size)]
            others |= {"vocabulary": words, "padding": known.padding}
        others |= {"missing": data.missing} if data.missing else {}
        rest = {name: np.asarray(each) for name, each in others.items() if each is not None}
        return {**_inputs(data.inputs), "labels": data.labels.numpy(), **named, **owned, **rest}
    if isinstance(data, torch.utils.data.Dataset):
        data = _pairs(data)
    if isinstance(data, list | tuple) and len(data) == 2:
        _check_rows(*(getattr(each, "index", None) for each in data))
        return {**_inputs(data[0]), "labels": _array(data[1], "labels")}
    raise InputError(
        f"The data are {type(data).__name__}; give a source, inputs with labels, a mapping of arrays, or a dataset."
    )


def _check_rows(inputs: Any, labels: Any) -> None:
    """Raise InputError if the indices of inputs and labels of pandas have the same rows in another order."""
    if not all(hasattr(each, "sort_values") for each in (inputs, labels)) or inputs.equals(labels):
        return
    if inputs.sort_values().equals(labels.sort_values()):
        raise InputError(
            "The labels have the rows of the inputs in another order, as their index says: give "
            "labels.loc[inputs.index]."
        )


def _pairs(data: Any) -> list[Any]:
    """Return the inputs, (N, ...), and the labels, (N,), of a dataset of torch."""
    if isinstance(data, torch.utils.data.IterableDataset) or not hasattr(data, "__len__"):
        raise InputError("The dataset is a stream, or has no length: give a dataset that numbers its samples.")
    pairs = [data[place] for place in range(len(data))]
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) > 1 for pair in pairs):
        raise InputError(
            "The dataset has no samples, or samples that are not pairs: give pairs of an input and its label."
        )
    inputs, labels = ([_array(pair[place], "a sample") for pair in pairs] for place in (0, 1))
    if len(shapes := {each.shape for each in inputs}) > 1:
        raise InputError(f"The dataset has inputs of the shapes {listed(sorted(shapes))}: bring them to one shape.")
    for place, first in enumerate(inputs[:REREAD]):
        if _array(data[place][0], "a sample").tobytes() != first.tobytes():
            raise InputError(
                f"The dataset gives sample {place} another input when it is read again, as random transforms do: leave "
                "them out, because they would change test and public samples too; training.augmentation changes only "
                "training samples."
            )
    if odd := next((each.shape for each in labels if each.size != 1), None):
        raise InputError(f"The dataset has a label of shape {odd}: give each sample one class, a number or a name.")
    values = [int(label.item()) if label.dtype == bool else label.item() for label in labels]
    stacked = np.stack(inputs)
    return [torch.from_numpy(stacked) if isinstance(pairs[0][0], Tensor) else stacked, np.array(values)]


def _inputs(inputs: Any) -> dict[str, Any]:
    """Return inputs by the name of their kind: ``images``, ``features`` or ``tokens``."""
    array = _array(inputs, "inputs")
    if array.dtype.kind in "iub" and hasattr(inputs, "columns"):  # a DataFrame of numbers has no texts
        return {"features": array.astype(np.float64)}
    whole = array.dtype.kind in "iu"
    name = "tokens" if whole and array.ndim == 2 else "images" if whole else "features"
    return {name: _array(inputs, name)}


def _array(values: Any, name: str) -> Any:
    """Return values as an array. Images of a tensor, (N, C, H, W), become (N, H, W, C)."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().to_dense()
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
        if name != "images" or array.ndim != 4:
            return array
        if array.shape[1] > 4 >= array.shape[3]:
            raise InputError(
                f"The images of a tensor are (N, C, H, W), and these have the shape {array.shape}: give "
                "images.permute(0, 3, 1, 2), or images.numpy()."
            )
        return array.transpose(0, 2, 3, 1)
    if np.ma.is_masked(values):
        raise InputError(f"The {name} have masked values: fill them, or leave out their samples.")
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of several lengths
        raise InputError(
            f"The {name} have several lengths: give an array of samples of one shape. The samples of all clients go "
            "into one array, with the owner of each: {'features': ..., 'labels': ..., 'clients': ...}."
        ) from error
    return array if array.dtype != object else _plain(array, name)


def _plain(objects: Any, name: str) -> Any:
    """Return an array of Python objects, as pandas has texts, as an array of text or numbers."""
    texts = [each for each in objects.flat if isinstance(each, str)]
    numbers = [each for each in objects.flat if isinstance(each, Real | np.bool_)]
    if len(texts) + len(numbers) < objects.size:
        odd = next(each for each in objects.flat if not isinstance(each, str | Real | np.bool_))
        raise InputError(f"The {name} have {odd!r:.80}, a {type(odd).__name__}: give numbers, or names as texts.")
    if texts and numbers:
        raise InputError(f"The {name} have {texts[0]!r:.80} and {numbers[0]!r}: give only numbers, or only texts.")
    whole = all(isinstance(each, Integral) for each in numbers)
    return objects.astype(str if texts else np.int64 if whole else np.float64)
