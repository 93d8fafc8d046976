"""FedProx: FedAvg whose clients are held near the global model."""

from dataclasses import replace

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.rules import Proximal
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.settings import Budgets, Reliability
from ktpfl_pipeline.core.weights import vector_of
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.fedprox import FedProx

EVERYONE = list(toy.IDS)


def test_two_steps_by_hand() -> None:
    """f' = 2 v, w = 1, mu = 1, rate 1/4: v = 1 - (2 + 0) / 4 = 1/2, then 1/2 - (1 + (1/2 - 1)) / 4 = 3/8."""
    one, nobody = torch.ones(1), [torch.tensor([0])]
    v = one
    for expected in (0.5, 0.375):
        v, w = Proximal(1.0).step((v, one), lambda v, batch, probe=False: 2 * v, nobody, 0.25)
        assert (v.item(), w.item()) == (expected, 1.0)


def test_without_coupling_it_is_fedavg() -> None:
    """Bit for bit, over rounds with cohorts, dropout and BatchNorm."""
    schedule = Schedule(rounds=3, participation=0.6)
    runs = [engine.run(method, toy.alike("both"), schedule) for method in (FedProx(0.0), FedAvg(), FedProx(1.0))]
    assert toy.same(runs[0].state, runs[1].state)
    assert not toy.same(runs[2].state, runs[1].state)


@pytest.mark.parametrize("coupling", [0.3, 2.0])
def test_rounds_equal_a_plain_implementation(coupling: float) -> None:
    """The pull is of the gradient of (mu/2) times the squared distance, which autograd finds."""
    fed, method, cohort = toy.alike("conv", dtype="float64"), FedProx(coupling), [3, 12]
    state, _ = method.round(method.init(fed), EVERYONE, 1, fed)
    after, report = method.round(state, cohort, 2, fed)
    for n in cohort:
        module, samples = by_hand.module(fed, n, state.model), fed.by_id[n].train
        for batch in by_hand.batches(fed, n, 2):
            loss = cross_entropy(module(by_hand.pixels(samples)[batch]), samples.labels[batch])
            distance = sum((v - state.model[name]).square().sum() for name, v in module.named_parameters())
            by_hand.descend(list(module.parameters()), loss + coupling / 2 * distance, 0.1)
        assert by_hand.differ(report.after_local[n], module.state_dict()) < 1e-12
    names = fed.trained_names
    expected = sum(size * vector_of(report.after_local[n], names) for n, size in ((3, 16), (12, 9))) / 25
    assert torch.allclose(vector_of(after.model, names), expected, rtol=0, atol=1e-14)


def test_limited_clients_upload_what_they_reached() -> None:
    """With half of two epochs, a client uploads the model after one."""
    half = Reliability(budgets=Budgets(share=1.0, epochs=0.5))
    fed, method = toy.alike(dtype="float64"), FedProx(0.5)
    short = toy.again(fed, reliability=half)
    one = toy.again(fed, training=replace(fed.training, epochs=1))
    state = method.init(fed)
    assert toy.same(method.round(state, [3, 7], 1, short)[0], method.round(state, [3, 7], 1, one)[0])
    assert not toy.same(method.round(state, [3, 7], 1, fed)[0], method.round(state, [3, 7], 1, one)[0])
