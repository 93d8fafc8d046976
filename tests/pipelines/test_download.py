"""Private images on their way from a source into an experiment."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiment import EXPERIMENT

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.pipelines.download.nodes import load_private

COUNTS = [40, 20, 20]  # images by class


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Eighty images, each of one grey value of its own."""
    images = np.broadcast_to(np.arange(80, dtype=np.uint8)[:, None, None], (80, 28, 28))
    np.savez(tmp_path / "mine.npz", images=images, labels=np.repeat(np.arange(3), COUNTS))
    return tmp_path


def private(raw: Path, samples: int | None, **changes: Any) -> LabelledDataset:
    own = {"source": "npz:mine.npz", "samples": samples}
    found: LabelledDataset = load_private(parsing.parse("mine", {**EXPERIMENT, "private": own, **changes}), raw)
    return found


def test_null_keeps_all(raw: Path) -> None:
    assert len(private(raw, None)) == len(private(raw, 80)) == 80


def test_a_part_has_the_label_distribution_of_all(raw: Path) -> None:
    part = private(raw, 20)
    assert part.labels.bincount().tolist() == [10, 5, 5]
    values = part.inputs[:, 0, 0, 0].tolist()
    assert values == sorted(set(values)), "each image once, in the order of the source"
    assert part.labels.tolist() == [0 if value < 40 else 1 if value < 60 else 2 for value in values]


def test_which_images_there_are_is_the_experiments_not_the_seeds(raw: Path) -> None:
    first, second = private(raw, 20, seeds=[0]), private(raw, 20, seeds=[1, 2])
    assert torch.equal(first.inputs, second.inputs)


def test_more_than_there_are(raw: Path) -> None:
    with pytest.raises(InputError) as refused:
        private(raw, 81)
    assert str(refused.value) == (
        "private.samples is 81 and there are 80 private images: lower it, or take all with private.samples: null."
    )


def test_too_few_for_every_class(raw: Path) -> None:
    with pytest.raises(
        InputError, match=r"^private.samples is 2, which leaves class [12] without an image: raise it.$"
    ):
        private(raw, 2)
