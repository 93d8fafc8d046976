"""FedSSA: rows of heads that clients with a class share, and fuse with their own for the first rounds."""

from dataclasses import replace
from math import cos, pi

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import linear

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fedssa import FedSSA, averaged, fused

EVERYONE = list(toy.IDS)


def test_rows_are_averaged_over_the_owners_of_their_class() -> None:
    """Class 0 is of both clients, class 1 of the second, class 2 of none."""
    heads = [torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[3.0, 2.0], [7.0, 8.0], [9.0, 9.0]])]
    owned = torch.tensor([[True, False, False], [True, True, False]])
    old = torch.full((3, 2), -1.0)
    assert averaged(heads, owned, old).tolist() == [[2.0, 2.0], [7.0, 8.0], [-1.0, -1.0]]
    biases = [torch.tensor([1.0, 5.0, 5.0]), torch.tensor([2.0, 4.0, 4.0])]
    assert averaged(biases, owned, torch.zeros(3)).tolist() == [1.5, 4.0, 0.0]


def test_rows_of_own_classes_are_fused() -> None:
    own = {"weight": torch.tensor([[2.0], [4.0]]), "bias": torch.tensor([2.0, 4.0])}
    common = {"weight": torch.tensor([[10.0], [20.0]]), "bias": torch.tensor([30.0, 40.0])}
    found = fused(own, common, torch.tensor([True, False]), 0.5)
    assert found["weight"].tolist() == [[11.0], [4.0]]
    assert found["bias"].tolist() == [31.0, 4.0]


def federation() -> Federation:
    """Return clients with linear models; client 3 has no image of class 1."""
    fed = toy.federation(architectures=("linear", "conv"), dtype="float64")
    first, *rest = fed.clients
    kept = first.train.take((first.train.labels != 1).nonzero()[:, 0])
    return toy.again(fed, clients=(replace(first, train=kept), *rest))


def test_four_rounds_are_those_of_a_plain_implementation() -> None:
    """μ is 0.6, 0.6 cos(π/4), 0.6 cos(π/2) and 0 after rounds 0, 1, 2 and 3; client 7 is absent in the second."""
    fed, method = federation(), FedSSA(8, start=0.6, stable=2)
    state, own = method.init(fed), {}
    common = dict(state.head)
    classes = {n: [0, 2] if n == 3 else [0, 1, 2] for n in EVERYONE}
    for t, cohort in enumerate(([3, 7, 12], [3, 12], [3, 7, 12], [3, 7, 12]), start=1):
        mu = 0.6 * cos(pi * (t - 1) / 4) if t <= 3 else 0.0
        after, report = method.round(state, cohort, t, fed)
        trained = {}
        for n in cohort:
            head = start(own[n], common, classes[n], mu) if n in own else common
            extractor, weight, bias = by_hand.train_with_head(fed, n, t, state.models[n], head, 8)
            trained[n] = {"weight": weight.detach(), "bias": bias.detach()}
            images = by_hand.pixels(fed.by_id[n].test)
            expected = linear(by_hand.pooled(extractor.eval()(images), 8), weight, bias)
            found = by_hand.module(fed, n, report.after_local[n]).eval()(images)
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)
        own = {**own, **trained}
        for name in common:
            rows = [[trained[n][name][k] for n in cohort if k in classes[n]] for k in range(3)]
            common = {**common, name: torch.stack([torch.stack(each).mean(dim=0) for each in rows])}
        assert by_hand.differ(after.head, common) < 1e-12
        state = after
    assert set(state.own) == {3, 7, 12}


def start(own: dict[str, Tensor], common: dict[str, Tensor], classes: list[int], mu: float) -> dict[str, Tensor]:
    found = {name: row.clone() for name, row in own.items()}
    for name, rows in found.items():
        for k in classes:
            rows[k] = common[name][k] + mu * own[name][k]
    return found


@pytest.mark.parametrize("dimension", [8, 64])
def test_rows_of_own_classes_travel(dimension: int) -> None:
    """F weights and a bias a class: client 3 has two, client 20 three."""
    fed, method = federation(), FedSSA(dimension)
    _, report = method.round(method.init(fed), [3, 20], 1, fed)
    sizes = {n: 4 * (dimension + 1) * classes for n, classes in ((3, 2), (20, 3))}
    assert report.traffic == {n: Traffic(parameters_up=size, parameters_down=size) for n, size in sizes.items()}
