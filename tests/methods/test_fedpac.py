"""FedPAC: heads and extractors in turns, centroids, and the weights of combined heads."""

from dataclasses import replace
from typing import Any

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import vector_of
from ktpfl_pipeline.methods.fedpac import FedPAC, combination, statistics

EVERYONE, HEAD = list(toy.IDS), ["4.weight", "4.bias"]


def one_number(*values: float) -> Tensor:
    """Return h of clients with one class and one feature, (n, 1, 1) float64."""
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def variances(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class TestCombination:
    def test_alike_clients_are_weighted_by_inverse_variance(self) -> None:
        """Minimize a^2 + 3 (1 - a)^2: a = 3/4."""
        assert torch.allclose(combination(one_number(2, 2), variances(1, 3)), variances(0.75, 0.25).expand(2, 2))

    def test_a_different_client_counts_less(self) -> None:
        """Row 0, minimize a^2 + b^2 + (b d)^2 with a + b = 1: b = 1 / (2 + d^2), 1/6 for d = 2."""
        found = combination(one_number(0, 2), variances(1, 1))
        assert torch.allclose(found, torch.tensor([[5, 1], [1, 5]], dtype=torch.float64) / 6, rtol=0, atol=1e-12)

    def test_no_weight_is_negative(self) -> None:
        """Row 0: both others deviate to the same side, of which the far one would only be subtracted."""
        found = combination(one_number(0, 1, 100), variances(1, 1, 1))
        assert (found >= 0).all()
        assert torch.allclose(found.sum(dim=1), torch.ones(3, dtype=torch.float64))
        assert found[0, 2] == 0
        assert torch.allclose(found[0, :2], variances(2, 1) / 3, rtol=0, atol=1e-12)

    def test_clients_on_both_sides_cancel(self) -> None:
        """Row 0 is between two others whose deviations cancel: with no variance of theirs it takes them alone."""
        found = combination(one_number(0, 1, -1), variances(1, 0, 0))
        assert torch.allclose(found[0], variances(0, 0.5, 0.5), rtol=0, atol=1e-9)

    @pytest.mark.parametrize("scale", [1.0, 1e-6])
    def test_it_is_a_minimum(self, scale: float) -> None:
        """Of a random problem, also of small numbers: no vertex has a lower derivative (Karush, Kuhn and Tucker)."""
        draws = torch.Generator().manual_seed(3)
        h = torch.randn(6, 3, 4, generator=draws, dtype=torch.float64) * scale
        v = torch.rand(6, generator=draws, dtype=torch.float64) * scale**2
        for own, row in zip(h, combination(h, v), strict=True):
            away = (own - h).flatten(1)
            slope = (away @ away.T + v.diag()) @ row
            assert float(slope.min()) >= float(row @ slope) * (1 - 1e-9)

    def test_one_client_keeps_its_head(self) -> None:
        assert combination(one_number(3), variances(0)).tolist() == [[1.0]]


def without_class_1(fed: Federation, n: int) -> Federation:
    """Return the federation with no training image of class 1 in client n."""
    train = fed.by_id[n].train
    kept = train.take((train.labels != 1).nonzero().flatten())
    return toy.again(fed, clients=tuple(replace(each, train=kept) if each.id == n else each for each in fed.clients))


def features_of(fed: Federation, n: int, params: Any) -> Tensor:
    return by_hand.module(fed, n, params).eval()[:-1](by_hand.pixels(fed.by_id[n].train)).detach()


def test_statistics_are_of_class_means() -> None:
    fed = toy.alike("conv", dtype="float64")
    params, labels = fed.initial_model("conv"), fed.by_id[7].train.labels
    found = fed.run("prototypes", statistics, {7: (params, 36)})[7]
    x = features_of(fed, 7, params)
    shares = [(labels == k).double().mean() for k in range(3)]
    h = torch.stack([share * x[labels == k].mean(dim=0) for k, share in enumerate(shares)])
    within = sum(share * x[labels == k].square().sum(dim=1).mean() for k, share in enumerate(shares))
    assert torch.allclose(found[0], h, rtol=0, atol=1e-14)
    assert torch.allclose(found[1], (within - h.square().sum()) / 17, rtol=0, atol=1e-14)


@pytest.mark.parametrize("centroids", ["data", "uniform"])
def test_a_round_is_that_of_a_plain_implementation(centroids: Any) -> None:
    """The second round, whose cohort has a client without a head of its own; the first has no centroids."""
    fed, cohort = toy.alike("conv", dtype="float64"), [3, 7, 12]
    method = FedPAC(weight=3.0, head_rate=0.05, centroids=centroids)
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    after, report = method.round(state, cohort, 2, fed)
    sums, counts = torch.zeros(3, 36, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for n in cohort:
        start = {**fed.initial_model("conv"), **state.models.get(n, {}), **state.common}
        module, samples = by_hand.module(fed, n, start), fed.by_id[n].train
        inputs, labels = by_hand.pixels(samples), samples.labels
        for batch in sgd.batches(len(samples), 8, fed.stream("private shuffle", 2, n, "head")):
            by_hand.descend([*module[-1].parameters()], cross_entropy(module(inputs[batch]), labels[batch]), 0.05)
        for batch in by_hand.batches(fed, n, 2):
            feature = module[:-1](inputs[batch])
            loss = cross_entropy(module[-1](feature), labels[batch])
            distance = (feature - state.prototypes[labels[batch]]).square().mean()
            by_hand.descend([*module[:-1].parameters()], loss + 3.0 * distance, 0.1)
        assert by_hand.differ(report.after_local[n], module.state_dict()) < 1e-12
        x = features_of(fed, n, module.state_dict())
        for k in range(3):
            share = (labels == k).sum() if centroids == "data" else 1
            sums[k] += share * x[labels == k].mean(dim=0)
            counts[k] += share
    assert torch.allclose(after.prototypes, sums / counts[:, None], rtol=0, atol=1e-12)
    names = [name for name in fed.trained_names if name not in HEAD]
    bodies = sum(len(fed.by_id[n].train) * vector_of(report.after_local[n], names) for n in cohort) / (16 + 17 + 9)
    assert torch.allclose(vector_of(after.common, names), bodies, rtol=0, atol=1e-12)
    assert torch.allclose(report.coefficients.sum(dim=1), torch.ones(5, dtype=torch.float64))
    assert not torch.equal(report.coefficients, torch.eye(5, dtype=torch.float64))
    places, found = [0, 1, 3], method.personal(after, cohort, fed)
    for i, n in zip(places, cohort, strict=True):
        mixed = sum(
            report.coefficients[i, j] * vector_of(report.after_local[m], HEAD)
            for j, m in zip(places, cohort, strict=True)
        )
        assert torch.allclose(vector_of(found[n], HEAD), mixed, rtol=0, atol=1e-12)
        assert torch.equal(vector_of(found[n], names), vector_of(after.common, names))


def test_centroids_of_absent_classes_stay() -> None:
    fed = toy.alike("conv")
    kept = without_class_1(fed, 3)
    method = FedPAC()
    state, _ = method.round(method.init(kept), [3], 1, kept)
    assert state.known.tolist() == [True, False, True]
    state, _ = method.round(state, EVERYONE, 2, kept)
    after, _ = method.round(state, [3], 3, kept)
    assert torch.equal(after.prototypes[1], state.prototypes[1])
    assert not torch.equal(after.prototypes[0], state.prototypes[0])


def test_nothing_is_trained_without_epochs() -> None:
    fed, method = toy.alike("conv"), FedPAC()
    idle = toy.again(fed, training=replace(fed.training, epochs=0))
    _, report = method.round(method.init(idle), [3], 1, idle)
    assert toy.same(report.after_local[3], fed.initial_model("conv"))


def test_what_goes_up_and_down() -> None:
    """A model of 167 numbers both ways; up, two tables of the client's classes and V; down, three centroids of 36."""
    fed = toy.alike("conv")
    two = without_class_1(fed, 3)
    method = FedPAC()
    _, report = method.round(method.init(two), [3, 7], 1, two)
    expected = {3: 2 * 2 * 36 + 1, 7: 2 * 3 * 36 + 1}
    assert report.traffic == {
        n: Traffic(prototypes_up=4 * up, prototypes_down=4 * 3 * 36, parameters_up=4 * 167, parameters_down=4 * 167)
        for n, up in expected.items()
    }


def test_a_model_without_an_extractor_trains_its_head() -> None:
    fed = toy.alike()
    before = fed.initial_model("linear")
    state, report = FedPAC().round(FedPAC().init(fed), [3, 7], 1, fed)
    assert state.common == {}
    assert all(not toy.same(params, before) for params in report.after_local.values())
    assert min(fed.current.losses["train"].values()) > 0
