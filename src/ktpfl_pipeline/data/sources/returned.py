"""Checks of the samples that a source outside this package returns."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.data.owned import OwnedDataset, class_names
from ktpfl_pipeline.data.sources.features import check_finite
from ktpfl_pipeline.data.sources.labels import class_numbers
from ktpfl_pipeline.data.sources.tokens import check_ids, vocabulary_of


def check_returned(samples: Any, source: str) -> LabeledDataset:
    """Return the samples that the function of `source` returned, with labels in int64, after checking them.

    Raises InputError if they are not a `LabeledDataset`, or if types, shapes or values are not as its documentation
    requires.
    """
    who = f"source {source!r}"
    if not isinstance(samples, LabeledDataset):
        raise InputError(f"{who} returned a {type(samples).__name__}, and must return a LabeledDataset of tensors.")
    given: LabeledDataset = samples
    inputs, labels = given.inputs, given.labels
    for name, part in {"inputs": inputs, "labels": labels}.items():
        if not isinstance(part, Tensor):
            raise InputError(f"{who} returned {name} in a {type(part).__name__}: make it a tensor (torch.as_tensor).")
    if labels.dtype in (torch.bool, torch.complex64, torch.complex128) or labels.dim() != 1:
        raise InputError(
            f"{who} returned labels in {labels.dtype} of shape {tuple(labels.shape)}: they must be class numbers in "
            "int64, (M,)."
        )
    if not any(kind.allows(inputs) for kind in kinds.KINDS.values()):
        raise InputError(f"{who} returned inputs in {inputs.dtype} of shape {tuple(inputs.shape)}: {kinds.forms()}.")
    if len(inputs) != len(labels) or not len(labels):
        raise InputError(
            f"{who} returned {plural(len(inputs), 'input')} and {plural(len(labels), 'label')}: return one label per"
            " input."
        )
    numbers = torch.from_numpy(class_numbers(labels.cpu().numpy(), who))
    known = given.vocabulary
    if kinds.of(inputs) is kinds.TOKENS:
        known = known or vocabulary_of(inputs, who)
        check_ids(inputs, known.size, who)
    elif inputs.is_floating_point():
        check_finite(inputs, who)
    groups = given.groups
    if groups is not None and (groups.dtype != torch.int64 or groups.shape != labels.shape):
        raise InputError(
            f"{who} returned groups in {groups.dtype} of shape {tuple(groups.shape)}: they must be numbers in int64, "
            "one for each sample, or None."
        )
    if isinstance(samples, OwnedDataset):
        _check_owners(samples, who)
    names = None if samples.class_names is None else class_names(samples.class_names, numbers, who)
    if labels.dtype == torch.int64 and given.class_names == names and given.vocabulary == known:
        return given
    return replace(given, labels=numbers, class_names=names, vocabulary=known)


def _check_owners(samples: OwnedDataset, who: str) -> None:
    owners, test, known = samples.owners, samples.test, len(samples.names)
    if (
        owners.dtype != torch.int64
        or owners.shape != samples.labels.shape
        or not 0 <= owners.min() <= owners.max() < known
    ):
        raise InputError(
            f"{who} returned owners in {owners.dtype} of shape {tuple(owners.shape)}: they must be rows of its {known} "
            "names in int64, from 0, one for each sample."
        )
    if test is not None and (test.dtype != torch.bool or test.shape != samples.labels.shape):
        raise InputError(
            f"{who} returned test in {test.dtype} of shape {tuple(test.shape)}: it must be true or false for each "
            "sample, or None."
        )
