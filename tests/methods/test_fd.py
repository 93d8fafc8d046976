"""FD: mean predictions by class go up, and the others' come down."""

from dataclasses import replace

import by_hand
import torch
import toy
from torch.nn.functional import cross_entropy, softmax

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fd import FD
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)


def without(fed: Federation, n: int, label: int) -> Federation:
    """Return the federation in which client n has no training image of a class."""
    client = fed.by_id[n]
    poorer = replace(client, train=client.train.take((client.train.labels != label).nonzero()[:, 0]))
    return toy.again(fed, clients=tuple(poorer if other.id == n else other for other in fed.clients))


def test_rounds_equal_a_plain_implementation() -> None:
    """Client 7 has no image of class 1; in the second round clients 11 and 20 are absent, and their means stay."""
    fed, method = without(toy.federation(architectures=("linear", "conv"), dtype="float64"), 7, 1), FD(0.7)
    state, uploads = method.init(fed), {}
    models = {n: by_hand.module(fed, n, params) for n, params in state.models.items()}
    for t, cohort in ((1, EVERYONE), (2, [3, 7, 12])):
        state, _ = method.round(state, cohort, t, fed)
        found = {}
        for n in cohort:
            teachers = {}
            for label in range(3):
                means = [means[label] for m, means in uploads.items() if m != n and label in means]
                if means:
                    teachers[label] = sum(means) / len(means)
            found[n] = one_client(fed, n, t, models[n], teachers)
        uploads |= found
        for row, n in enumerate(EVERYONE):
            assert by_hand.differ(state.models[n], models[n].state_dict()) < 1e-12
            for label in range(3):
                expected = uploads[n].get(label, torch.zeros(3, dtype=torch.float64))
                assert torch.allclose(state.means[row, label], expected, rtol=0, atol=1e-12)
                assert state.owned[row, label] == (label in uploads[n])


def one_client(
    fed: Federation, n: int, t: int, module: torch.nn.Module, teachers: dict[int, torch.Tensor]
) -> dict[int, torch.Tensor]:
    """Train a model in place; return the mean probabilities of its forward passes by class."""
    samples, said = fed.by_id[n].train, {}
    for batch in by_hand.batches(fed, n, t):
        logits = module(by_hand.pixels(samples)[batch])
        loss = cross_entropy(logits, samples.labels[batch])
        for row, label in zip(logits, samples.labels[batch].tolist(), strict=True):
            said.setdefault(label, []).append(softmax(row.detach(), dim=0))
            if label in teachers:
                loss = loss - 0.7 * (teachers[label] * torch.log(softmax(row, dim=0))).sum() / len(batch)
        by_hand.descend(list(module.parameters()), loss, 0.1)
    return {label: sum(rows) / len(rows) for label, rows in said.items()}


def test_without_weight_and_in_the_first_round_it_is_local_training() -> None:
    """Bit for bit, over rounds with cohorts; nobody has heard of others in round 1."""
    schedule = Schedule(rounds=3, participation=0.6)
    run, alone = (engine.run(method, toy.federation(), schedule) for method in (FD(weight=0.0), Local()))
    assert toy.same(run.state.models, alone.state.models)
    fed = toy.federation()
    one, trained = (m.round(m.init(fed), EVERYONE, 1, fed)[0].models for m in (FD(9.0), Local()))
    assert toy.same(one, trained)


def test_means_are_distributions_of_the_classes_that_a_client_has() -> None:
    fed = without(toy.federation(), 3, 2)
    state, _ = FD().round(FD().init(fed), EVERYONE, 1, fed)
    assert torch.allclose(state.means.sum(dim=2), state.owned.double(), rtol=0, atol=1e-6)
    assert state.owned.sum().item() == 14


def test_a_client_does_not_hear_itself() -> None:
    """Whatever it uploaded before, it trains the same."""
    fed, method = toy.federation(), FD(2.0)
    before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    told = before.means.clone()
    told[0] = 1.0 / 3.0
    for n, hears in ((3, False), (7, True)):
        plain, other = (method.round(state, [n], 2, fed)[0] for state in (before, replace(before, means=told)))
        assert (by_hand.differ(plain.models[n], other.models[n]) > 1e-4) == hears


def test_traffic() -> None:
    """K numbers a class: those that it has go up, the table comes down."""
    fed = without(toy.federation(), 7, 1)
    _, report = FD().round(FD().init(fed), [7, 12], 1, fed)
    assert report.traffic == {
        7: Traffic(prototypes_up=2 * 12, prototypes_down=3 * 12),
        12: Traffic(prototypes_up=3 * 12, prototypes_down=3 * 12),
    }
