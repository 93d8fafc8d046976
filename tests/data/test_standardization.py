"""Features have mean 0 and standard deviation 1 in what clients train on, and nothing else has a say in it."""

import pytest
import torch

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.data.federated import FederatedData, PublicSet
from ktpfl_pipeline.data.partition import ClientIndices
from ktpfl_pipeline.data.standardization import PADDING, UNKNOWN, Fitted, FrequentTokens, Standardization, of_plain

GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.arange(40) % 4
PARTITION = {
    3: ClientIndices(torch.arange(0, 12), torch.arange(12, 15), torch.arange(15, 20)),
    1: ClientIndices(torch.arange(20, 33), torch.arange(33, 35), torch.arange(35, 40)),
}
TRAINING = [*range(12), *range(20, 33)]


def features(*shape: int) -> torch.Tensor:
    """Channels of very different places and spreads."""
    place = 10.0 ** torch.arange(shape[1]).view(-1, *[1] * (len(shape) - 2))
    return place * (5 + torch.randn(shape, generator=GENERATOR))


def data(inputs: torch.Tensor, public: torch.Tensor) -> FederatedData:
    chosen = PublicSet(public, {0: torch.arange(len(public))})
    return FederatedData(LabeledDataset(inputs, LABELS), chosen, {0: PARTITION})


@pytest.mark.parametrize("shape", [(40, 3), (40, 3, 7), (40, 2, 4, 5)], ids=["vectors", "series", "three axes"])
def test_training_samples_of_all_clients_have_mean_0_and_deviation_1(shape: tuple[int, ...]) -> None:
    seed = data(inputs := features(*shape), features(6, *shape[1:])).seeds[0]
    trained = torch.cat([client.train.inputs for client in seed.clients.values()]).double()
    along = [0, *range(2, trained.ndim)]
    assert trained.shape == (25, *shape[1:])
    assert trained.mean(dim=along) == pytest.approx(0, abs=1e-5)
    assert trained.std(dim=along, correction=0) == pytest.approx(1, abs=1e-5)
    assert seed.clients[1].test.inputs.dtype == torch.float32
    assert torch.equal(seed.private.inputs, inputs), "what the source gives stays as it is"


def test_test_samples_and_public_features_do_not_influence_the_scale() -> None:
    inputs, public = features(40, 3), features(6, 3)
    scale = data(inputs, public).seeds[0].scale
    changed = inputs.clone()
    changed[[n for n in range(40) if n not in TRAINING]] = 1e6
    other = data(changed, public * 9).seeds[0].scale
    assert scale is not None and other is not None
    assert torch.equal(scale.mean, other.mean) and torch.equal(scale.std, other.std)


def test_public_features_are_brought_to_the_same_scale() -> None:
    inputs = features(40, 3)
    seed = data(inputs, inputs[:12]).seeds[0]
    assert torch.equal(seed.standardized(seed.public), seed.clients[3].train.inputs)


def test_a_channel_without_any_spread_is_moved_and_not_stretched() -> None:
    scale = Standardization.of(torch.full((5, 2), 7.0), [torch.arange(5)])
    assert scale.std.tolist() == [1.0, 1.0]
    assert scale(torch.tensor([[7.0, 9.0]])).tolist() == [[0.0, 2.0]]


def test_images_stay_as_they_are() -> None:
    images = torch.randint(0, 256, (40, 1, 2, 2), generator=GENERATOR).to(torch.uint8)
    seed = data(images, images[:5]).seeds[0]
    assert seed.scale is None
    assert seed.standardized(seed.public) is seed.public
    assert torch.equal(seed.clients[3].train.inputs, images[:12])


TEXTS = torch.tensor([[2, 3, 3], [4, 3, 2], [5, 5, 5], [6, 0, 0]])


def test_models_see_the_most_frequent_tokens_of_training_texts() -> None:
    fitted = FrequentTokens.of(TEXTS, [torch.tensor([0]), torch.tensor([1, 3])], size=8, frequent=4)
    assert fitted.kept.tolist() == [3, 2], "three times, and twice; 5 is in no training text"
    assert fitted(TEXTS).tolist() == [[3, 2, 2], [UNKNOWN, 2, 3], [UNKNOWN] * 3, [UNKNOWN, PADDING, PADDING]]


def test_padding_and_unknown_tokens_take_no_place_among_the_most_frequent() -> None:
    texts = torch.tensor([[2, 3, UNKNOWN, UNKNOWN, UNKNOWN, PADDING, PADDING, PADDING]])
    assert FrequentTokens.of(texts, [torch.tensor([0])], size=4, frequent=4).kept.tolist() == [2, 3]


def test_tokens_of_no_training_text_are_unknown_where_all_fit() -> None:
    fitted = FrequentTokens.of(TEXTS, [torch.tensor([0])], size=8, frequent=8)
    assert fitted(torch.tensor([[2, 3, 4, 7]])).tolist() == [[3, 2, UNKNOWN, UNKNOWN]]


@pytest.mark.parametrize(
    "fitted", [FrequentTokens(torch.tensor([3, 2]), 8), Standardization(torch.ones(2), torch.ones(2))]
)
def test_a_fitted_scale_survives_conversion_to_plain_values(fitted: Fitted) -> None:
    assert of_plain(fitted.plain()).plain() == fitted.plain()
