"""FedGH: a head that the server trains on class means, and that takes the place of the clients'."""

from dataclasses import replace
from functools import partial

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import interpolate, linear, one_hot, softmax

from ktpfl_pipeline.core.client.features import train_common_head
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedgh import FedGH
from ktpfl_pipeline.models import build

EVERYONE = list(toy.IDS)


def test_a_round_is_that_of_a_plain_implementation() -> None:
    """The server's steps in closed form: the gradient of the mean cross-entropy is (softmax - one-hot) ⊗ mean / M."""
    fed, method, cohort = (
        toy.federation(architectures=("linear", "conv"), dtype="float64"),
        FedGH(8, 0.3, 7),
        [3, 7, 12],
    )
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(state, cohort, 2, fed)
    means, classes = [], []
    for n in cohort:
        samples = fed.by_id[n].train
        extractor, weight, bias = by_hand.train_with_head(fed, n, 2, state.models[n], state.head, 8)
        with torch.no_grad():
            feature = by_hand.pooled(extractor.eval()(by_hand.pixels(samples)), 8)
            found = by_hand.module(fed, n, report.after_local[n]).eval()(by_hand.pixels(samples))
            assert torch.allclose(found, linear(feature, weight, bias), rtol=0, atol=1e-12)
        for label in range(3):
            means.append(feature[samples.labels == label].mean(dim=0))
            classes.append(label)
    weight, bias = trained(state.head, torch.stack(means), torch.tensor(classes), 0.3, 7)
    assert torch.allclose(after.head["weight"], weight, rtol=0, atol=1e-12)
    assert torch.allclose(after.head["bias"], bias, rtol=0, atol=1e-12)
    assert by_hand.differ(after.head, state.head) > 1e-3
    for n in EVERYONE:
        image = by_hand.pixels(fed.by_id[n].test)
        module = by_hand.module(fed, n, after.models[n]).eval()
        expected = linear(by_hand.pooled(module[:-1](image), 8), weight, bias)
        found = by_hand.module(fed, n, method.personal(after, [n], fed)[n]).eval()(image)
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def trained(head: dict[str, Tensor], means: Tensor, classes: Tensor, rate: float, steps: int) -> tuple[Tensor, Tensor]:
    weight, bias = head["weight"], head["bias"]
    for _ in range(steps):
        error = softmax(linear(means, weight, bias), dim=1) - one_hot(classes, 3)
        weight, bias = weight - rate * error.T @ means / len(means), bias - rate * error.mean(dim=0)
    return weight, bias


def test_the_server_learns_the_clients_classes() -> None:
    """Where no client knows more than one class, the head learns all of them from their means."""
    fed, method = toy.federation(3, architectures=("linear",)), FedGH(64, 0.1, 300)
    for row, client in enumerate(fed.clients):
        own = client.train.take((client.train.labels == row).nonzero()[:, 0])
        fed = with_training(fed, client.id, own)
    state, report = method.round(method.init(fed), [3, 7, 11], 1, fed)
    personal = method.personal(state, [3, 7, 11], fed)
    local, common = (fed.evaluate(models, "test") for models in (report.after_local, personal))
    for n in personal:
        assert local[n].accuracy + 0.1 < common[n].accuracy


def with_training(fed: Federation, n: int, samples: LabeledDataset) -> Federation:
    clients = tuple(replace(client, train=samples) if client.id == n else client for client in fed.clients)
    return toy.again(fed, clients=clients)


@pytest.mark.parametrize("dimension", [2, 64])
def test_means_go_up_and_the_head_comes_down(dimension: int) -> None:
    fed = toy.federation()
    first = fed.by_id[3].train
    fed = with_training(fed, 3, first.take((first.labels != 1).nonzero()[:, 0]))
    _, report = FedGH(dimension).round(FedGH(dimension).init(fed), [3, 20], 1, fed)
    down = 4 * (3 * dimension + 3)
    assert report.traffic == {
        3: Traffic(prototypes_up=2 * 4 * dimension, parameters_down=down),
        20: Traffic(prototypes_up=3 * 4 * dimension, parameters_down=down),
    }


@pytest.mark.parametrize("name", ["fedgh", "lg_fedavg", "fedgen"])
def test_adaptation_trains_the_common_head_in_its_own_parameters(name: str) -> None:
    """On 3,136 features of cnn_bn, where training the layer (W P, b) moves logits several times too far.

    Adaptation and newcomers equal `train_common_head` for as many epochs.
    """
    clients = tuple(
        Client(n, "cnn_bn", *(toy_28(size, seed=10 * n + i) for i, size in enumerate((16, 6, 9)))) for n in (3, 7)
    )
    made, public = partial(build, shape=(1, 28, 28), classes=3), toy_28(24, seed=99).inputs
    fed = toy.again(toy.federation(2, dtype="float64"), build=made, clients=clients, public=public)
    method = create(name, {"dimension": 64})
    state, _ = method.round(method.init(fed), [3], 1, fed)
    start = method.personal(state, [3], fed)
    space = Workspace(fed)
    expected = {3: train_common_head(space, 3, start[3], state.head, 0, epochs=2).value[0]}
    assert toy.distance(method.adapt(state, start, 2, fed), expected) < 1e-12
    assert toy.distance(fed.fine_tune(start, 2), expected) > 1e-5
    joined = method.join(state, start, [7], fed).models
    expected = {7: train_common_head(space, 7, joined[7], state.head, 0, epochs=2).value[0]}
    assert toy.distance(method.settle(state, joined, 2, fed), expected) < 1e-12


def toy_28(number: int, seed: int) -> LabeledDataset:
    """Return toy samples of 28 x 28 pixels."""
    small = toy.samples(number, seed)
    return LabeledDataset(interpolate(small.inputs.float(), (28, 28)).to(torch.uint8), small.labels)
