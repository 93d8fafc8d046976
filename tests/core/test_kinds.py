"""Kinds of data: what models are given, and that one entry in the registry adds a kind."""

import pytest
import torch
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError


def test_pixels_become_numbers_from_minus_one_to_one() -> None:
    images = torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8)
    assert kinds.of(images) is kinds.IMAGES
    assert kinds.of(images).to_float(images).flatten().tolist() == pytest.approx([-1.0, -0.6, 1.0])
    assert images.flatten().tolist() == [0, 51, 255]


def test_floats_in_the_range_of_pixels_are_left_alone() -> None:
    given = torch.tensor([[[[0.0, 255.0]]]])
    kinds.IMAGES.to_float(given)
    assert given.flatten().tolist() == [0.0, 255.0]


def test_features_stay_as_they_are() -> None:
    features = torch.tensor([[0.5, -300.0]])
    assert kinds.of(features) is kinds.FEATURES
    assert torch.equal(kinds.of(features).to_float(features, torch.float64), features.double())


def test_a_dataset_says_its_kind() -> None:
    labels = torch.tensor([0])
    assert LabeledDataset(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), labels).kind.pixels
    assert LabeledDataset(torch.zeros(1, 3), labels).kind.standardized


def test_a_dtype_of_no_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"torch.int16, which is the dtype of no kind of data: images must be uint8"):
        kinds.of(torch.zeros(1, 4, dtype=torch.int16))


def test_tokens_stay_ids_in_every_precision() -> None:
    ids = torch.tensor([[0, 300, 2]])
    assert kinds.of(ids) is kinds.TOKENS
    assert torch.equal(kinds.TOKENS.to_float(ids, torch.float64), ids)
    assert kinds.TOKENS.to_float(ids, torch.float64).dtype == torch.int64


@pytest.mark.parametrize(
    ("inputs", "size"),
    [
        (torch.zeros(1, 1, 2, 2, dtype=torch.uint8), 1),
        (torch.zeros(1, 2), 4),
        (torch.tensor([[255]]), 1),
        (torch.tensor([[256]]), 2),
        (torch.tensor([[70_000]]), 4),
    ],
)
def test_bytes_of_a_number_on_its_way(inputs: Tensor, size: int) -> None:
    assert kinds.of(inputs).transported(inputs) == size


def test_a_new_kind_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(kinds.Tokens):
        name, dtype, form = "counts", torch.int16, "int16, (M, features)"

    monkeypatch.setitem(kinds.KINDS, "counts", Counts())
    assert kinds.of(torch.zeros(1, 4, dtype=torch.int16)).name == "counts"
    assert "counts int16" in kinds.forms()
