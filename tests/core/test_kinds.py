"""Kinds of data: how inputs become floats, and that one entry in the registry adds a kind."""

from typing import Any

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline import methods
from ktpfl_pipeline.core import engine, kinds
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError

VOCABULARY = 12


class Tokens(kinds.Kind):
    """Sequences of numbers of words, (M, L) int64, which a model embeds."""

    name, dtype, form = "tokens", torch.int64, "int64, (M, length)"

    def to_float(self, inputs: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return tokens as they are."""
        return inputs

    def random_like(self, inputs: Tensor, number: int, generator: torch.Generator) -> Tensor:
        """Return uniform tokens."""
        return torch.randint(0, int(inputs.max()) + 1, (number, *inputs.shape[1:]), generator=generator)


class Bag(nn.Module):
    """The mean of the embeddings of all words, and a linear layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.embedding, self.head = nn.EmbeddingBag(VOCABULARY, 8 if name == "wide" else 4), nn.LazyLinear(toy.CLASSES)
        self.head(torch.zeros(1, self.embedding.embedding_dim))

    def forward(self, tokens: Tensor) -> Any:
        return self.head(self.embedding(tokens))


def sentences(number: int, seed: int) -> LabelledDataset:
    """Return sequences of six words; each class has four words of its own."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % toy.CLASSES
    words = torch.randint(0, 4, (number, 6), generator=draws) + 4 * labels[:, None]
    return LabelledDataset(words, labels)


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
    assert LabelledDataset(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), labels).kind.pixels
    assert LabelledDataset(torch.zeros(1, 3), labels).kind.standardized


def test_a_dtype_of_no_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"torch.int64, which is the dtype of no kind of data: images must be uint8"):
        kinds.of(torch.zeros(1, 4, dtype=torch.int64))


@pytest.mark.parametrize("name", ["kt_pfl", "fedavg", "fedproto"])
def test_one_entry_adds_a_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.KINDS, "tokens", Tokens())
    fed = toy.federation(architectures=("wide",), build=Bag, public=sentences(24, 0).inputs)
    clients = tuple(
        toy.replace(client, train=sentences(20, n), validation=sentences(6, 50 + n), test=sentences(30, 100 + n))
        for n, client in enumerate(fed.clients)
    )
    fed = toy.again(fed, clients=clients)
    done = engine.run(methods.create(name, {}), fed, engine.Schedule(3))
    assert min(done.history[-1].accuracy["after_transfer"]) > 0.8, "guessing has a third"
