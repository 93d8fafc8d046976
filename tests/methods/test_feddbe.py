"""FedDBE: one mean feature for all clients, and a bias of the features for each."""

from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.feddbe import FedDBE, FedDBEState, shifted

EVERYONE, HEAD = list(toy.IDS), ["4.weight", "4.bias"]


def two_rounds(fed: Federation, method: FedDBE) -> FedDBEState:
    """Return the state after a round that finds the mean feature, and one in which clients 3 and 7 train biases."""
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    return method.round(state, [3, 7], 2, fed)[0]


def test_the_first_round_is_fedavg_and_finds_the_mean_feature() -> None:
    """Of the trained models, weighted by samples: clients 3 and 12 have 16 and 9."""
    fed, method = toy.alike("conv", dtype="float64"), FedDBE()
    after, report = method.round(method.init(fed), [3, 12], 1, fed)
    assert toy.same(after.model, FedAvg().round(FedAvg().init(fed), [3, 12], 1, fed)[0].model)
    assert not after.biases
    sums = torch.zeros(36, dtype=torch.float64)
    for n in (3, 12):
        module = by_hand.module(fed, n, report.after_local[n]).eval()
        sums += module[:-1](by_hand.pixels(fed.by_id[n].train)).detach().sum(dim=0)
    assert torch.allclose(after.mean, sums / 25, rtol=0, atol=1e-13)


@pytest.mark.parametrize("momentum", [1.0, 0.25])
def test_a_round_is_that_of_a_plain_implementation(momentum: float) -> None:
    """Client 12 has no bias yet; 3 goes on with its own."""
    fed, method = toy.alike("conv", dtype="float64"), FedDBE(weight=4.0, momentum=momentum)
    state, cohort = two_rounds(fed, method), [3, 12]
    after, report = method.round(state, cohort, 3, fed)
    for n in cohort:
        module, samples = by_hand.module(fed, n, state.model), fed.by_id[n].train
        bias = state.biases.get(n, {"bias": torch.zeros(36, dtype=torch.float64)})["bias"].clone().requires_grad_()
        running = torch.zeros(36, dtype=torch.float64)
        for batch in by_hand.batches(fed, n, 3):
            x = module[:-1](by_hand.pixels(samples)[batch])
            running = (1 - momentum) * running.detach() + momentum * x.mean(dim=0)
            fit = cross_entropy(module[-1](x + bias), samples.labels[batch])
            by_hand.descend([*module.parameters(), bias], fit + 2.0 * (running - state.mean).square().mean(), 0.1)
        assert by_hand.differ(after.biases[n], {"bias": bias.detach()}) < 1e-12
        expected = {**module.state_dict(), HEAD[1]: module[-1].bias + module[-1].weight @ bias}
        assert by_hand.differ(report.after_local[n], {name: value.detach() for name, value in expected.items()}) < 1e-12
    assert torch.equal(after.mean, state.mean)
    assert after.biases[7] is state.biases[7]


def test_the_head_reads_shifted_features() -> None:
    """Numbers by hand: W = [1, 2], b = 3, z = [10, 100] give b + W z = 213; the rest of the model stays."""
    fed = toy.alike("conv")
    model = {"4.weight": torch.tensor([[1.0, 2.0]]), "4.bias": torch.tensor([3.0]), "0.bias": torch.ones(1)}
    found = shifted(model, fed, {"bias": torch.tensor([10.0, 100.0])})
    assert found["4.bias"].tolist() == [213.0]
    assert found["4.weight"] is model["4.weight"]
    assert toy.same(shifted(model, fed, {}), model)


def test_personal_models_add_the_bias_to_the_new_global_model() -> None:
    fed, method = toy.alike("conv", dtype="float64"), FedDBE()
    state = two_rounds(fed, method)
    found = method.personal(state, EVERYONE, fed)
    inputs = by_hand.pixels(fed.by_id[3].test)
    common = by_hand.module(fed, 3, state.model).eval()
    expected = common[-1](common[:-1](inputs) + state.biases[3]["bias"])
    assert torch.allclose(by_hand.module(fed, 3, found[3]).eval()(inputs), expected, rtol=0, atol=1e-13)
    assert all(toy.same(found[n], state.model) for n in (11, 12, 20))


def test_a_stronger_pull_brings_means_together() -> None:
    """After the same rounds, from the same means."""
    fed, distances = toy.alike("conv", training=replace(toy.alike().training, learning_rate=0.03)), []
    for weight in (0.0, 5.0, 20.0):
        method = FedDBE(weight=weight)
        state = two_rounds(fed, method)
        for t in (3, 4):
            state, report = method.round(state, EVERYONE, t, fed)
        module = by_hand.module(fed, 3, report.after_local[3]).eval()
        feature = module[:-1](by_hand.pixels(fed.by_id[3].train)).detach().mean(dim=0)
        distances.append(float((feature - state.mean).square().sum()))
    assert distances == sorted(distances, reverse=True)


def test_adaptation_goes_on_with_the_bias_and_without_the_pull() -> None:
    """As a round with a weight of zero, from the same global model and bias."""
    fed, method = toy.alike("conv", dtype="float64"), FedDBE(weight=4.0)
    state = two_rounds(fed, method)
    adapted = method.adapt(state, method.personal(state, [3], fed), 2, fed)
    _, report = FedDBE(weight=0.0).round(state, [3], 0, fed)
    assert toy.same(adapted, report.after_local)
    assert toy.distance(adapted, fed.fine_tune(method.personal(state, [3], fed), 2)) > 1e-3


def test_a_mean_feature_goes_up_once_and_then_comes_down() -> None:
    """167 numbers of a model, and 36 of a feature."""
    fed, method, size = toy.alike("conv"), FedDBE(), 4 * 167
    state, report = method.round(method.init(fed), [3, 7], 1, fed)
    first = Traffic(prototypes_up=4 * 36, parameters_up=size, parameters_down=size)
    assert report.traffic == dict.fromkeys([3, 7], first)
    _, report = method.round(state, [7, 20], 2, fed)
    later = Traffic(prototypes_down=4 * 36, parameters_up=size, parameters_down=size)
    assert report.traffic == dict.fromkeys([7, 20], later)
