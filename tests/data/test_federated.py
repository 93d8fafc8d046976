"""What the runs of a seed share: the same tensors, counted and hashed once."""

import io
from dataclasses import replace

import pytest
import torch

from ktpfl_pipeline.core.dataset import LabeledDataset, TokenShape, Vocabulary
from ktpfl_pipeline.core.warnings import Warned
from ktpfl_pipeline.data.federated import FederatedData, PublicSet
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition import ClientIndices

IMAGES = torch.arange(8, dtype=torch.uint8).reshape(8, 1, 1, 1)
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 2, 0])


def owns(train: list[int], validation: list[int], test: list[int]) -> ClientIndices:
    return ClientIndices(*(torch.tensor(indices, dtype=torch.int64) for indices in (train, validation, test)))


@pytest.fixture
def data() -> FederatedData:
    """Two clients; with seed 0 all public images are used, with seed 1 two of three."""
    public = PublicSet(IMAGES[:3] + 100, {0: torch.arange(3), 1: torch.tensor([0, 2])})
    partition = {1: owns([4, 5], [], [6]), 0: owns([0, 2], [1], [3])}
    return FederatedData(LabeledDataset(IMAGES, LABELS), public, {0: partition, 1: partition})


def test_each_client_has_its_images(data: FederatedData) -> None:
    clients = data.seeds[0].clients
    assert list(clients) == [0, 1]
    assert clients[0].train.inputs.flatten().tolist() == [0, 2]
    assert clients[0].validation.labels.tolist() == [0]
    assert clients[1].test.inputs.flatten().tolist() == [6]
    assert len(clients[1].validation) == 0


def test_public_images_of_a_seed(data: FederatedData) -> None:
    assert data.seeds[1].public.flatten().tolist() == [100, 102]
    assert data.seeds[0].public is data.public.inputs, "not copied where all are public"


def test_warnings_are_kept_with_the_data(data: FederatedData) -> None:
    """Also by the file that `torch.load` reads with `weights_only`."""
    warned = replace(data, warnings=(Warned("Axes", "one"), Warned("Units", "two")))
    torch.save(warned.plain(), file := io.BytesIO())
    file.seek(0)
    assert FederatedData.from_plain(torch.load(file, weights_only=True)).warnings == warned.warnings


def test_labels_by_client(data: FederatedData) -> None:
    """All splits together; the last image is nobody's."""
    assert data.private.classes == 3
    assert data.seeds[0].label_counts.tolist() == [[2, 2, 0], [0, 0, 3]]


def test_made_once(data: FederatedData) -> None:
    assert data.seeds[0] is data.seeds[0]
    assert data.seeds[0].clients is data.seeds[0].clients


def test_skewed_clients_differ_by_level_and_public_images_stay(data: FederatedData) -> None:
    """Client 1 of two stands at the second level, in all its splits; images are rotated by half a turn."""
    wide = LabeledDataset(torch.arange(16, dtype=torch.uint8).reshape(8, 1, 1, 2), LABELS)
    plain, skewed = replace(data, private=wide), replace(data, private=wide, skew=("rotation", 2))
    for split in ("train", "validation", "test"):
        here, there = (getattr(each.seeds[0].clients[0], split).inputs for each in (plain, skewed))
        assert torch.equal(here, there)
        here, there = (getattr(each.seeds[0].clients[1], split).inputs for each in (plain, skewed))
        assert torch.equal(here.flip(-1), there)
    assert skewed.seeds[0].clients[1].train.labels.tolist() == [2, 2]
    assert torch.equal(skewed.seeds[0].public, plain.seeds[0].public)


def test_noise_is_added_to_standardized_features(data: FederatedData) -> None:
    """So it goes by their own deviation."""
    features = torch.stack([torch.arange(8.0), 1000 * torch.arange(8.0)], 1)
    plain = replace(data, private=LabeledDataset(features, LABELS), public=PublicSet(features[:3], data.public.indices))
    noisy = replace(plain, skew=("noise", 2))
    added = noisy.seeds[0].clients[1].train.inputs - plain.seeds[0].clients[1].train.inputs
    assert 0 < added.abs().min() <= added.abs().max() < 3
    assert torch.equal(noisy.seeds[0].clients[0].train.inputs, plain.seeds[0].clients[0].train.inputs)


def test_saved_and_read_again(data: FederatedData) -> None:
    owned = OwnedDataset(IMAGES, LABELS, LABELS, ("a", "b", "c"))
    given = replace(data, private=owned, skew=("noise", 3), names={0: ("a", "b"), 1: ("a", "c")})
    again = FederatedData.from_plain(given.plain())
    assert again.seeds[1].names == ("a", "c")
    assert again.seeds[0].fingerprint == given.seeds[0].fingerprint


def test_everything_that_a_run_sees_is_in_its_fingerprint(data: FederatedData) -> None:
    first = data.seeds[0].fingerprint
    moved = {**data.partitions[0], 0: owns([0, 1], [2], [3])}
    others = [
        replace(data, private=LabeledDataset(IMAGES + 1, LABELS)),
        replace(data, private=LabeledDataset(IMAGES, LABELS.flip(0))),
        replace(data, public=PublicSet(IMAGES[:3] + 101, data.public.indices)),
        replace(data, partitions={0: moved}),
        replace(data, skew=("noise", 2)),
    ]
    assert data.seeds[1].fingerprint != first
    assert len({first, *(other.seeds[0].fingerprint for other in others)}) == 6


def test_texts_survive_the_file_and_rare_words_are_unknown(data: FederatedData) -> None:
    known = Vocabulary(8, 0, tuple("_?abcdef"), 4)
    texts = torch.tensor([[2, 3], [4, 4], [2, 0], [5, 0], [2, 3], [3, 6], [7, 7], [2, 2]])
    private = LabeledDataset(texts, LABELS, vocabulary=known)
    data = replace(data, private=private, public=PublicSet(texts[:3], {0: torch.arange(3), 1: torch.arange(3)}))
    again = FederatedData.from_plain(data.plain())
    assert again.private.vocabulary == known
    assert isinstance(again.private.shape, TokenShape)
    assert again.private.shape.vocabulary == 4
    own = again.seeds[0]
    assert own.clients[1].train.inputs.tolist() == [[2, 3], [3, 1]], "words 2 and 3 are trained on most often"
    assert own.standardized(own.public).tolist() == [[2, 3], [1, 1], [2, 0]]
    assert own.fingerprint != replace(own, private=replace(private, vocabulary=replace(known, frequent=5))).fingerprint
