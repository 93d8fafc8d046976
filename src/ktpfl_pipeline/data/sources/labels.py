"""Labels as sources have them: class numbers, as integers or as floats with integer values, or names of classes."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import composed
from ktpfl_pipeline.data.sources.limits import MAX_CLASSES

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number, with a point for its decimals. Python's floats may also be 18_25, which is a text here."""


def class_numbers(labels: "np.ndarray[Any, Any]", where: str) -> "np.ndarray[Any, Any]":
    """Return labels, (M,), as int64: integers, or floats with integer values.

    A label column with missing values in pandas, and the generators of FedProx, write 3.0. The error for the first that
    is not a class number from 0 to 9,999 says `where` it is: in a file, of a user, of a source.
    """
    with np.errstate(invalid="ignore"):
        wrong = ~((labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))
    if wrong.any():
        row = int(wrong.argmax())
        label = labels[row].item()
        shown = f"{label:.12g}" if isinstance(label, float) else label
        raise InputError(
            f"{where} has the label {shown} in row {row} (rows count from 0): labels are class numbers, integers"
            f" from 0 to {MAX_CLASSES - 1}; number the classes."
        )
    return labels.astype(np.int64)


def in_order(names: Iterable[object]) -> list[str]:
    """Return different names of classes in the order of their numbers: as numbers where all are numbers, or as text."""
    texts = sorted({str(name) for name in names})
    return sorted(texts, key=float) if all(map(NUMBER.fullmatch, texts)) else texts


def numbered(texts: Sequence[object]) -> tuple[list[str], Tensor]:
    """Return the names of classes, in one form of Unicode and `in_order`, and each sample's class, (M,) int64."""
    forms = {text: composed(text) for text in map(str, texts)}
    names = in_order(forms.values())
    numbers = {name: number for number, name in enumerate(names)}
    return names, torch.tensor([numbers[forms[str(text)]] for text in texts], dtype=torch.int64)
