"""FedAdam, FedYogi and FedAdagrad: the steps of the server, and what they leave to FedAvg."""

from dataclasses import replace
from math import sqrt

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core.weights import vector_of
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.fedopt import FedOpt

EVERYONE = list(toy.IDS)
NAMES = ("fedadam", "fedyogi", "fedadagrad")


@pytest.mark.parametrize(
    ("name", "expected"), [("fedadam", (1.25, 3.25)), ("fedyogi", (1.5, 3.75)), ("fedadagrad", (3.0, 5.0))]
)
def test_second_moments_by_hand(name: str, expected: tuple[float, float]) -> None:
    """β₂ = 3/4, v = 1 and 4, and Δ² = 2 and 1.

    Adam: (3 v + Δ²) / 4. Yogi moves v by Δ² / 4 toward Δ²: 1 + 1/2 and 4 - 1/4. Adagrad: 1 + 2 and 4 + 1.
    """
    method = create(name, {"beta2": 0.75})
    assert method.second_moment(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0])).tolist() == list(expected)


def test_presets() -> None:
    assert create("fedadam") == FedOpt("adam", server_rate=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    assert create("fedyogi") == FedOpt("yogi", server_rate=0.01, beta1=0.9, beta2=0.99, tau=0.001)
    assert create("fedadagrad") == FedOpt("adagrad", server_rate=0.1, beta1=0.0, tau=0.001)


def numbers(vectors: Tensor) -> list[float]:
    return [float(value) for value in vectors]


@pytest.mark.parametrize("name", NAMES)
def test_two_rounds_are_algorithm_2(name: str) -> None:
    """Number by number, with cohorts, unequal sizes and BatchNorm, whose statistics are averages."""
    fed = toy.alike("conv", dtype="float64")
    method = create(name, {"server_rate": 0.05, "tau": 0.01})
    state, names = method.init(fed), fed.trained_names
    m, v = [0.0] * 159, [0.01**2] * 159
    for t, cohort in ((1, [3, 7]), (2, [7, 20])):
        x, ends = numbers(vector_of(state.model, names)), []
        for n in cohort:
            module, samples = by_hand.module(fed, n, state.model), fed.by_id[n].train
            for batch in by_hand.batches(fed, n, t):
                loss = cross_entropy(module(by_hand.pixels(samples)[batch]), samples.labels[batch])
                by_hand.descend(list(module.parameters()), loss, 0.1)
            ends.append(numbers(torch.cat([each.detach().flatten() for each in module.parameters()])))
        sizes = [len(fed.by_id[n].train) for n in cohort]
        assert sizes[0] != sizes[1]
        expected = []
        for i, old in enumerate(x):
            change = sum(size * (end[i] - old) for size, end in zip(sizes, ends, strict=True)) / sum(sizes)
            m[i] = method.beta1 * m[i] + (1 - method.beta1) * change
            if name == "fedadagrad":
                v[i] += change**2
            elif name == "fedadam":
                v[i] = 0.99 * v[i] + 0.01 * change**2
            else:
                v[i] += 0.01 * change**2 if change**2 > v[i] else -0.01 * change**2
            expected.append(old + 0.05 * m[i] / (sqrt(v[i]) + 0.01))
        state, report = method.round(state, cohort, t, fed)
        found = vector_of(state.model, names)
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
        averages = fed.average(report.after_local)
        assert all(torch.equal(state.model[each], averages[each]) for each in averages if "running" in each)
    assert name != "fedyogi" or {value > 0.01**2 for value in v} == {True, False}


def test_with_a_large_tau_the_first_step_is_half_of_fedavgs() -> None:
    """Without momentum and with η = τ the step is Δ / (√v / τ + 1), where v is still τ²."""
    fed = toy.alike("both", dtype="float64")
    method = FedOpt("adagrad", server_rate=1e6, beta1=0.0, tau=1e6)
    (one, _), (other, _) = (each.round(each.init(fed), EVERYONE, 1, fed) for each in (method, FedAvg()))
    names = fed.trained_names
    start, average = (vector_of(model, names) for model in (method.init(fed).model, other.model))
    assert torch.allclose(vector_of(one.model, names), start.lerp(average, 0.5), rtol=0, atol=1e-9)


def test_without_a_step_the_model_stays_and_m_and_v_fade() -> None:
    fed, method = toy.alike("both"), FedOpt(server_rate=1e-9)
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    idle = toy.again(fed, training=replace(fed.training, epochs=0))
    after, _ = method.round(state, [3, 20], 2, idle)
    assert torch.equal(after.momentum, 0.9 * state.momentum)
    assert torch.equal(after.squares, 0.99 * state.squares)


@pytest.mark.parametrize("name", NAMES)
def test_newcomers_and_never_sampled_clients_get_the_global_model(name: str) -> None:
    fed, method = toy.alike("conv"), create(name)
    state, _ = method.round(method.init(fed), [7, 20], 1, fed)
    assert method.personal(state, [3], fed)[3] is state.model
    assert method.join(state, {}, [3], fed).models[3] is state.model
