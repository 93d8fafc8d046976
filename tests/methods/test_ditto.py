"""Ditto: FedAvg beside local training, and the pull between them."""

from functools import cache

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import vector_of
from ktpfl_pipeline.methods.ditto import Ditto
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)
SCHEDULE = Schedule(rounds=3, participation=0.6)


@cache
def run_of(method: Ditto | FedAvg | Local) -> Run:
    return engine.run(method, toy.alike("both"), SCHEDULE)


@pytest.mark.parametrize("coupling", [0.0, 0.1, 3.0])
def test_the_common_model_is_fedavgs(coupling: float) -> None:
    """Bit for bit: the own models do not influence it."""
    run, fedavg = (run_of(method) for method in (Ditto(coupling), FedAvg()))
    assert toy.same(run.state.common, fedavg.state.model)


def test_without_coupling_own_models_are_local_training() -> None:
    """Bit for bit, and on from where they were: they are written back."""
    run, alone = (run_of(method) for method in (Ditto(0.0), Local()))
    assert toy.same(run.state.models, alone.state.models)


def test_the_pull_is_toward_the_model_that_was_sent() -> None:
    """With one full-batch step of 0.1: v - 0.1 (g + coupling (v - w)), g that of local training."""
    fed = toy.alike(dtype="float64", training=LocalTraining(epochs=1, batch_size=100, learning_rate=0.1))
    names, coupling = fed.trained_names, 0.7
    before, _ = Ditto(coupling).round(Ditto().init(fed), EVERYONE, 1, fed)
    after, report = Ditto(coupling).round(before, [3, 20], 2, fed)
    alone = fed.train({n: before.models[n] for n in (3, 20)}, 2)
    w = vector_of(before.common, names)
    for n in (3, 20):
        v = vector_of(before.models[n], names)
        expected = vector_of(alone[n], names) - 0.1 * coupling * (v - w)
        assert torch.allclose(vector_of(after.models[n], names), expected, rtol=0, atol=1e-14)
        assert float((v - w).abs().max()) > 1e-3
    assert toy.same({n: after.models[n] for n in (3, 20)}, report.after_local)


def test_the_own_model_is_evaluated() -> None:
    fed = toy.alike("both")
    after, _ = Ditto().round(Ditto().init(fed), [3, 7], 1, fed)
    found = Ditto().personal(after, EVERYONE, fed)
    assert toy.same({n: found[n] for n in (3, 7)}, after.models)
    assert not toy.same(found[3], found[7])
