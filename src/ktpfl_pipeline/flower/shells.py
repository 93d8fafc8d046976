"""Clients whose samples are elsewhere: known by number, architecture and sizes, and without a number of their data."""

from collections.abc import Sequence

import torch

from ktpfl_pipeline.core.dataset import LabelledDataset, Shape
from ktpfl_pipeline.core.setting import Client

NOTHING = (0, 0, 0)


def shell(n: int, architecture: str, sizes: Sequence[int], shape: Shape, name: str = "") -> Client:
    """Return a client with sizes of its splits and no samples: who asks for one gets torch's error, or a refusal.

    Args:
        n: its id.
        architecture: of its model.
        sizes: of its training, validation and test split.
        shape: of an image.
        name: what it calls itself.
    """

    def split(size: int) -> LabelledDataset:
        inputs = torch.empty(size, *shape, dtype=torch.uint8, device="meta")
        return LabelledDataset(inputs, torch.empty(size, dtype=torch.int64, device="meta"))

    train, validation, test = map(split, sizes)
    return Client(n, architecture, train, validation, test, name)
