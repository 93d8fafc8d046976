"""What a source of the user's own returned: samples, or a sentence that says why not."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ktpfl_pipeline.check import toy
from ktpfl_pipeline.core import extensions
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.sources import load, load_public

IMAGES, LABELS = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
SAMPLES = LabeledDataset(IMAGES, LABELS)
FEATURES = torch.zeros(4, 3)
OWNED = OwnedDataset(FEATURES, LABELS, torch.tensor([0, 0, 1, 1]), ("a", "b"), test=torch.tensor([True, False] * 2))


def returned(samples: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, file: str = "a.csv") -> LabeledDataset:
    monkeypatch.setattr(extensions, "load", lambda path, what: lambda argument, folder: samples)
    return load(f"my_package.sources:mine:{file}", tmp_path)


@pytest.mark.parametrize("samples", [SAMPLES, OWNED, replace(OWNED, test=None)])
def test_samples_are_taken_as_they_are(samples: LabeledDataset, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toy.same(returned(samples, tmp_path, monkeypatch), samples)
    assert toy.same(returned(samples, tmp_path, monkeypatch, "a.npz"), samples)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ((IMAGES, LABELS), "returned a tuple, and must return a LabeledDataset"),
        (SimpleNamespace(inputs=IMAGES, labels=LABELS), "returned a SimpleNamespace"),
        (replace(SAMPLES, inputs=IMAGES.numpy()), "returned inputs in a ndarray: make it a tensor"),
        (replace(SAMPLES, labels=[0, 1, 0, 1]), "returned labels in a list"),
        (replace(SAMPLES, labels=LABELS.bool()), "labels in torch.bool of shape (4,)"),
        (replace(SAMPLES, labels=LABELS + 0.5), "has the label 0.5 in row 0 (rows count from 0)"),
        (replace(SAMPLES, class_names=("cat",)), "has 1 class name and labels up to 1"),
        (replace(SAMPLES, class_names=("cat", "cat")), "has two classes named 'cat'"),
        (replace(SAMPLES, labels=LABELS[:, None]), "labels in torch.int64 of shape (4, 1)"),
        (replace(SAMPLES, labels=LABELS[:3]), "returned 4 inputs and 3 labels"),
        (LabeledDataset(IMAGES[:0], LABELS[:0]), "returned 0 inputs and 0 labels"),
        (
            replace(SAMPLES, labels=LABELS - 1),
            "has the label -1 in row 0 (rows count from 0): labels are class numbers",
        ),
        (replace(SAMPLES, labels=LABELS * 10_000), "has the label 10000 in row 1"),
        (replace(SAMPLES, inputs=IMAGES.long()), "inputs in torch.int64 of shape (4, 1, 8, 8)"),
        (replace(SAMPLES, inputs=IMAGES[:, 0]), "inputs in torch.uint8 of shape (4, 8, 8)"),
        (replace(SAMPLES, inputs=FEATURES[:, 0]), "inputs in torch.float32 of shape (4,)"),
        (replace(SAMPLES, inputs=FEATURES.log()), "has -inf in row 0"),
        (
            replace(OWNED, owners=OWNED.owners + 1),
            "owners in torch.int64 of shape (4,): it must be rows of its names",
        ),
        (replace(OWNED, owners=OWNED.owners[:3]), "owners in torch.int64 of shape (3,)"),
        (replace(OWNED, test=LABELS), "test in torch.int64 of shape (4,)"),
    ],
)
def test_anything_else_is_told_of(samples: Any, words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        returned(samples, tmp_path, monkeypatch)
    assert str(caught.value).startswith("source 'my_package.sources:mine:a.csv' ")


def test_two_clients_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"have 'b' 2 times: give each client a name of its own"):
        replace(OWNED, names=("a", "b", "b", "d"))


BOOM = """
from ktpfl_pipeline.core.errors import InputError

def table(argument, folder):
    raise ValueError("boom")

def opened(argument, folder):
    return open(folder / argument)

def told(argument, folder):
    raise InputError("so it is.")
"""


def test_an_error_of_a_users_source_becomes_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising").mkdir()
    (tmp_path / "raising" / "__init__.py").touch()
    (tmp_path / "raising" / "source.py").write_text(BOOM)
    file = tmp_path / "raising" / "source.py"
    with pytest.raises(InputError) as caught:
        load("raising.source:table:a.csv", tmp_path)
    assert str(caught.value) == (
        f"The source 'raising.source:table', given 'a.csv', raised ValueError: boom ({file}, line 5): "
        "correct it there, or what it reads."
    )
    with pytest.raises(InputError, match=r"raised FileNotFoundError: .*, line 8\)"):
        load_public("raising.source:opened:a.csv", "digits", tmp_path)
    with pytest.raises(InputError, match=r"^so it is\.$"):
        load("raising.source:told", tmp_path)
