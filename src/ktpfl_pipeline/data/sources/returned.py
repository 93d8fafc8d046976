"""Checks of the samples that a source outside this package returns."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.sources.parts import Part, check_finite, joined
from ktpfl_pipeline.data.sources.tokens import check_ids, vocabulary_of

COLUMNS = {
    "owners": (torch.int64, "rows of its names in int64, from 0, one for each sample"),
    "test": (torch.bool, "true or false for each sample, or None"),
    "groups": (torch.int64, "numbers in int64, one for each sample, or None"),
}
"""The dtype of each column besides the labels, and in words what it must be."""


def check_returned(samples: Any, source: str) -> LabeledDataset:
    """Return the samples that the function of `source` returned, with labels in int64, after checking them.

    Raises InputError if they are not a `LabeledDataset`, or if types, shapes or values are not as its documentation
    requires.
    """
    who = f"source {source!r}"
    if not isinstance(samples, LabeledDataset):
        raise InputError(f"{who} returned a {type(samples).__name__}, and must return a LabeledDataset of tensors.")
    inputs, labels, known = samples.inputs, samples.labels, samples.vocabulary
    for name, part in {"inputs": inputs, "labels": labels}.items():
        if not isinstance(part, Tensor):
            raise InputError(f"{who} returned {name} in a {type(part).__name__}: make it a tensor (torch.as_tensor).")
    if labels.dtype in (torch.bool, torch.complex64, torch.complex128) or labels.dim() != 1:
        raise InputError(f"{who} returned labels in {_form(labels)}: they must be class numbers in int64, (M,).")
    if not any(kind.allows(inputs) for kind in kinds.KINDS.values()):
        raise InputError(f"{who} returned inputs in {_form(inputs)}: {kinds.forms()}.")
    if len(inputs) != len(labels) or not len(labels):
        raise InputError(
            f"{who} returned {plural(len(inputs), 'input')} and {plural(len(labels), 'label')}: return one label per"
            " input."
        )
    names = samples.names if isinstance(samples, OwnedDataset) else None
    for name, (dtype, what) in COLUMNS.items():
        column = getattr(samples, name, None)
        if column is not None and (
            column.dtype != dtype
            or column.shape != labels.shape
            or (name == "owners" and not 0 <= column.min() <= column.max() < len(names or ()))
        ):
            raise InputError(f"{who} returned {name} in {_form(column)}: it must be {what}.")
    if kinds.of(inputs) is kinds.TOKENS:
        known = known or vocabulary_of(inputs, who)
        check_ids(inputs, known.size, who)
    elif inputs.is_floating_point():
        check_finite(inputs, who)
    made = joined(who, [Part(who, inputs, labels.cpu().numpy(), classes=samples.class_names, vocabulary=known)])
    return replace(samples, labels=made.labels, class_names=made.class_names, vocabulary=known)


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"
