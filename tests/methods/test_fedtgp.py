"""FedTGP: prototypes that the server trains by contrast with an adaptive margin."""

import math
from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.methods.fedproto import FedProto
from ktpfl_pipeline.methods.fedtgp import FedTGP, margin

EVERYONE = list(toy.IDS)


def test_two_rounds_equal_a_plain_implementation() -> None:
    fed = toy.federation(architectures=("linear", "conv"), dtype="float64")
    method = FedTGP(weight=0.6, dimension=4, threshold=1.5, rate=0.2, steps=3)
    state = method.init(fed)
    models = {n: by_hand.module(fed, n, params) for n, params in state.models.items()}
    server = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).double()
    server.load_state_dict(state.generator)
    wanted = None
    for t, cohort in ((1, EVERYONE), (2, [3, 12, 20])):
        state, _ = method.round(state, cohort, t, fed)
        uploaded = []
        for n in cohort:
            module, samples = models[n].train(), fed.by_id[n].train
            for batch in by_hand.batches(fed, n, t):
                labels = samples.labels[batch]
                feature = module[:-1](by_hand.pixels(samples)[batch])
                loss = cross_entropy(module[-1](feature), labels)
                if wanted is not None:
                    loss = loss + 0.6 * ((by_hand.pooled(feature, 4) - wanted[labels]) ** 2).mean()
                by_hand.descend(list(module.parameters()), loss, 0.1)
            with torch.no_grad():
                feature = by_hand.pooled(module.eval()[:-1](by_hand.pixels(samples)), 4)
            uploaded += [(feature[samples.labels == label].mean(dim=0), label) for label in range(3)]
        for _ in range(3):
            by_hand.descend(list(server.parameters()), contrast(server, uploaded, 1.5), 0.2)
        wanted = server(torch.arange(3)).detach()
        assert torch.allclose(state.prototypes, wanted, rtol=0, atol=1e-12)
        for n in EVERYONE:
            assert by_hand.differ(state.models[n], models[n].state_dict()) < 1e-12


def contrast(server: nn.Module, uploaded: list[tuple[Tensor, int]], threshold: float) -> Tensor:
    """FedTGP's loss, term by term."""
    centers = [torch.stack([mean for mean, c in uploaded if c == label]).mean(dim=0) for label in range(3)]
    delta = min(threshold, max(math.dist(a.tolist(), b.tolist()) for a in centers for b in centers))
    total = torch.zeros((), dtype=torch.float64)
    for mean, own in uploaded:
        distances = [torch.linalg.norm(mean - prototype) for prototype in server(torch.arange(3))]
        near = torch.exp(-(distances[own] + delta))
        far = sum(torch.exp(-distance) for label, distance in enumerate(distances) if label != own)
        total = total - torch.log(near / (near + far))
    return total / len(uploaded)


def test_the_margin_is_the_largest_distance_up_to_the_threshold() -> None:
    centers = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    assert margin(centers, 100.0) == pytest.approx(5.0)
    assert margin(centers, 2.0) == 2.0
    assert margin(centers[:1], 7.0) == 7.0  # one class has no distance to another


def test_prototypes_stand_farther_apart_than_averages() -> None:
    fed, found = toy.federation(architectures=("mlp",)), {}
    for method in (FedProto(dimension=12), FedTGP(dimension=12)):
        state = method.init(fed)
        for t in (1, 2):
            state, _ = method.round(state, EVERYONE, t, fed)
        found[type(method)] = torch.pdist(state.prototypes).min()
    assert found[FedTGP] > found[FedProto]


def without_class_2(fed: Federation) -> Federation:
    """Return the federation in which no client has a training image of class 2."""
    poorer = [replace(own, train=own.train.take((own.train.labels != 2).nonzero()[:, 0])) for own in fed.clients]
    return toy.again(fed, clients=tuple(poorer))


def test_a_class_without_owner_has_no_prototype() -> None:
    fed, method = without_class_2(toy.federation()), FedTGP(dimension=5)
    state, report = method.round(method.init(fed), EVERYONE, 1, fed)
    assert state.known.tolist() == [True, True, False]
    assert state.prototypes[2].tolist() == [0.0] * 5
    assert (report.traffic[3].prototypes_up, report.traffic[3].prototypes_down) == (2 * 20, 3 * 20)


def test_a_class_keeps_its_prototype_in_a_round_without_an_owner() -> None:
    fed, method = toy.federation(), FedTGP(dimension=5)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    state, _ = method.round(state, EVERYONE, 2, without_class_2(fed))
    assert state.known.all()
    assert state.prototypes[2].any()


def test_the_first_round_is_local_training() -> None:
    fed = toy.federation()
    state, _ = FedTGP(weight=50.0).round(FedTGP().init(fed), EVERYONE, 1, fed)
    assert toy.same(state.models, fed.train(fed.initial_models(), 1))
