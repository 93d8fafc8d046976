"""SCAFFOLD: corrected steps, the two control variates, and what goes both ways."""

from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.client.sgd import batch_sizes
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import average, vector_of
from ktpfl_pipeline.methods.scaffold import SCAFFOLD, SCAFFOLDState

EVERYONE = list(toy.IDS)


def test_two_steps_by_hand() -> None:
    """f' = 2 y, y = 1, c - c_n = 1/2, rate 1/4.

    y = 1 - (2 + 1/2) / 4 = 3/8, then 3/8 - (3/4 + 1/2) / 4 = 1/16. The gradients 2 and 3/4 add up to 11/4.
    """
    one, nobody = torch.ones(1), [torch.tensor([0])]
    vectors = (one, one / 2, torch.zeros(1), torch.zeros(1))
    for _ in range(2):
        vectors = SCAFFOLD().step(vectors, lambda y, batch, probe=False: 2 * y, nobody, 0.25)
    assert [float(vector) for vector in vectors] == [0.0625, 0.5, 2.75, 2.0]


def two_rounds(fed: Federation, method: SCAFFOLD) -> SCAFFOLDState:
    state, _ = method.round(method.init(fed), [3, 7], 1, fed)
    return method.round(state, [7, 12], 2, fed)[0]


@pytest.mark.parametrize("rate", [1.0, 0.5, 2.0])
def test_a_round_is_algorithm_1(rate: float) -> None:
    """Client 20 takes part for the first time; 3 has its own control variate. Option II as the paper writes it."""
    fed, method, cohort = toy.alike("conv", dtype="float64"), SCAFFOLD(rate), [3, 20]
    state, names = two_rounds(fed, method), fed.trained_names
    after, report = method.round(state, cohort, 3, fed)
    x, c, moves, changes = vector_of(state.model, names), state.control, [], []
    for n in cohort:
        own = state.controls.get(n, torch.zeros_like(c))
        module, samples = by_hand.module(fed, n, state.model), fed.by_id[n].train
        correction = torch.split(c - own, [parameter.numel() for parameter in module.parameters()])
        for batch in by_hand.batches(fed, n, 3):
            loss = cross_entropy(module(by_hand.pixels(samples)[batch]), samples.labels[batch])
            pairs = zip(correction, module.parameters(), strict=True)
            linear = sum(part @ parameter.flatten() for part, parameter in pairs)  # whose gradient is c - c_n
            by_hand.descend(list(module.parameters()), loss + linear, 0.1)
        y = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
        steps = 2 * len(batch_sizes(len(samples), 8))
        new = own - c + (x - y) / (steps * 0.1)
        assert torch.allclose(after.controls[n], new, rtol=0, atol=1e-12)
        assert float((new - own).abs().max()) > 1e-3
        assert by_hand.differ(report.after_local[n], module.state_dict()) < 1e-12
        moves.append(y - x)
        changes.append(new - own)
    assert torch.allclose(vector_of(after.model, names), x + rate * sum(moves) / 2, rtol=0, atol=1e-12)
    assert torch.allclose(after.control, c + sum(changes) / 5, rtol=0, atol=1e-12)
    statistics = [name for name in state.model if "running" in name]
    found = average([report.after_local[n] for n in cohort])
    assert all(torch.allclose(after.model[name], found[name]) for name in statistics)
    assert after.controls[7] is state.controls[7]


def test_the_first_round_is_uniform_fedavg() -> None:
    """All control variates are zero: bit for bit, unlike the average by samples."""
    fed, method = toy.alike("both"), SCAFFOLD()
    after, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    trained = fed.train(fed.common_models(), 1)
    assert toy.same(after.model, average(list(trained.values())))
    assert not toy.same(after.model, fed.average(trained))


def test_with_everyone_in_the_cohort_c_is_the_mean_of_all() -> None:
    fed, method = toy.alike(dtype="float64"), SCAFFOLD()
    state = method.init(fed)
    for t in (1, 2):
        state, _ = method.round(state, EVERYONE, t, fed)
    assert torch.allclose(state.control, sum(state.controls.values()) / 5, rtol=0, atol=1e-14)


def test_corrections_remove_the_drift_of_the_clients() -> None:
    """Each client has one class of its own, and local training drifts apart; corrected clients stay together."""
    fed = toy.alike(dtype="float64", training=LocalTraining(epochs=5, batch_size=100, learning_rate=0.1))
    clients = tuple(
        replace(client, train=client.train.take((client.train.labels == i % 3).nonzero().flatten()))
        for i, client in enumerate(fed.clients)
    )
    fed, method = toy.again(fed, clients=clients), SCAFFOLD()
    state, names, spreads = method.init(fed), fed.trained_names, []
    for t in range(1, 6):
        state, report = method.round(state, EVERYONE, t, fed)
        ends = torch.stack([vector_of(report.after_local[n], names) for n in EVERYONE])
        spreads.append(float(ends.var(dim=0).sum()))
    assert spreads[-1] < spreads[0] / 10


def test_without_a_step_nothing_changes() -> None:
    fed, method = toy.alike("both"), SCAFFOLD()
    state = two_rounds(fed, method)
    idle = toy.again(fed, training=replace(fed.training, epochs=0))
    after, _ = method.round(state, [3, 20], 3, idle)
    assert torch.equal(after.control, state.control)
    assert torch.equal(after.controls[3], state.controls[3])
    assert not after.controls[20].any()
    assert toy.same(after.model, state.model)


def test_a_model_and_a_control_variate_go_both_ways() -> None:
    """Float32 of 159 weights and of BatchNorm's eight statistics, and 159 more for the control variate."""
    fed, method = toy.alike("conv"), SCAFFOLD()
    _, report = method.round(method.init(fed), [7, 20], 1, fed)
    size = 4 * (159 + 8 + 159)
    assert report.traffic == dict.fromkeys([7, 20], Traffic(parameters_up=size, parameters_down=size))
    assert method.join(method.init(fed), {}, [3], fed).traffic == {3: Traffic(parameters_down=4 * (159 + 8))}
