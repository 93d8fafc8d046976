"""Samples that are given in Python, in the form of an ``.npz`` file, so that one reader checks all arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import OwnedDataset


def stored(data: Any, folder: Path) -> str:
    """Write samples that are given in Python to an ``.npz`` file, and return its source."""
    file = folder / "data.npz"
    np.savez(file, **_arrays(data))
    return f"npz:{file}"


def _arrays(data: Any) -> dict[str, Any]:
    """Return samples as the arrays of an ``.npz`` file. Raises InputError if they are of another form."""
    if isinstance(data, Mapping):
        return {name: _array(each, name) for name, each in data.items()}
    if isinstance(data, LabeledDataset):
        owned = {"clients": np.array(data.names)[data.owners]} if isinstance(data, OwnedDataset) else {}
        named = {} if data.class_names is None else {"classes": np.array(data.class_names)}
        test = {} if data.test is None or not owned else {"test": data.test.numpy()}
        others = {"groups": data.groups, "columns": data.columns, "fill": data.fill}
        rest = {name: np.asarray(each) for name, each in others.items() if each is not None}
        return {**_inputs(data.inputs), "labels": data.labels.numpy(), **named, **owned, **test, **rest}
    if isinstance(data, torch.utils.data.Dataset):
        pairs = [data[place] for place in range(len(data))]  # type: ignore[arg-type]
        data = [_stacked([pair[0] for pair in pairs]), np.array([int(pair[1]) for pair in pairs])]
    if isinstance(data, list | tuple) and len(data) == 2:
        return {**_inputs(data[0]), "labels": _array(data[1], "labels")}
    raise InputError(
        f"The data are {type(data).__name__}; give a source, inputs with labels, a mapping of arrays, or a dataset."
    )


def _stacked(inputs: list[Any]) -> Any:
    """Return inputs of one shape as one tensor or array, (N, ...)."""
    return torch.stack(inputs) if isinstance(inputs[0], Tensor) else np.stack([np.asarray(each) for each in inputs])


def _inputs(inputs: Any) -> dict[str, Any]:
    """Return inputs by the name of their kind: ``images``, ``features`` or ``tokens``."""
    kind = str(getattr(inputs, "dtype", np.asarray(inputs).dtype))
    name = "images" if kind.endswith("uint8") else "features" if "float" in kind else "tokens"
    return {name: _array(inputs, name)}


def _array(values: Any, name: str) -> Any:
    """Return values as an array. Images of a tensor, (N, C, H, W), become (N, H, W, C)."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    return array.transpose(0, 2, 3, 1) if name == "images" and isinstance(values, Tensor) and array.ndim == 4 else array
