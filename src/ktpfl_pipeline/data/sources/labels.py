"""Labels of sources: class numbers, as integers or as floats with integer values, or names of classes."""

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
"""A number with a decimal point. Python also reads 18_25 as a number, which is text here."""


def class_numbers(labels: "np.ndarray[Any, Any]", where: str) -> "np.ndarray[Any, Any]":
    """Return labels, (M,), as int64, from integers or from floats with integer values.

    Labels such as 3.0 occur in pandas columns with missing values, and in data of FedProx's generators. Raises
    InputError if a label is not an integer from 0 to 9,999. The message names the first such row and `where`.
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
    """Return names of classes sorted, without repetition: by value if all names are numbers, otherwise as text."""
    texts = sorted({str(name) for name in names})
    return sorted(texts, key=float) if all(map(NUMBER.fullmatch, texts)) else texts


def numbered(texts: Sequence[object]) -> tuple[list[str], Tensor]:
    """Return the names of classes, in NFC and `in_order`, and the class number of each of the M `texts`, int64."""
    forms = {text: composed(text) for text in map(str, texts)}
    names = in_order(forms.values())
    numbers = {name: number for number, name in enumerate(names)}
    return names, torch.tensor([numbers[forms[str(text)]] for text in texts], dtype=torch.int64)
