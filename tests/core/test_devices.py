"""Every method on a device that is not the CPU's memory, and what waits for it; pretended, as no GPU is at hand."""

from collections.abc import Iterator
from typing import Any

import pretend
import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client import features, operations, stacked
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Compute, LocalTraining
from ktpfl_pipeline.methods import create

HYPERPARAMETERS = {"fml": {"common": "linear"}}


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace what the pretended device cannot see: inference mode, and tensors made of lists."""
    for module in (operations, features, stacked):
        monkeypatch.setattr(module, "predict", torch.no_grad()(module.predict.__wrapped__))
    monkeypatch.setattr(torch, "tensor", pretend.tensor)
    with pretend.Device():
        yield


def federation(executor: SerialExecutor, **settings: Any) -> Federation:
    return toy.alike("conv", compute=Compute(pretend.DEVICE), executor=executor, **settings)


def test_tensors_in_two_places_are_refused() -> None:
    there = torch.ones(3).to(pretend.DEVICE)
    assert (2 * there).sum().item() == 6
    with pytest.raises(RuntimeError, match="two devices"):
        there + torch.ones(3)


STACKED = ("kt_pfl", "fedproto", "fml", "per_fedavg_hf", "apple")  # each with operations of its own in the stack


@pytest.mark.parametrize(
    ("name", "stack"), [*((name, 1) for name in toy.REPRESENTATIVES), *((name, 3) for name in STACKED)]
)
def test_every_tensor_is_where_it_should_be(name: str, stack: int) -> None:
    method = create(name, HYPERPARAMETERS.get(name))
    executor = SerialExecutor() if stack == 1 else StackedExecutor(stack)
    fed = federation(executor, training=LocalTraining(epochs=1, batch_size=8, learning_rate=0.1))
    run = engine.run(method, fed, Schedule(rounds=2, participation=0.6, evaluate_every=2))
    for params in method.personal(run.state, toy.IDS, fed).values():
        assert all(isinstance(tensor, pretend.There) for tensor in params.values())


@pytest.mark.parametrize(("executor", "waits"), [(SerialExecutor(), 5), (StackedExecutor(5), 1)])
def test_nothing_waits_inside_a_phase(executor: SerialExecutor, waits: int) -> None:
    """Training and distilling wait for the device once a client, or stack, at the end; predicting never.

    The server waits once more to see that all weights or predictions are finite, and that teachers are distributions.
    """
    fed = federation(executor)
    models, batch = fed.initial_models(), fed.public_batch(1)
    found = []
    for phase in (
        lambda: fed.train(models, 1),
        lambda: fed.logits(models, batch),
        lambda: fed.distill(models, torch.full((5, len(batch), 3), 1 / 3, device=pretend.DEVICE), batch, 1),
    ):
        pretend.Device.waits = 0
        phase()
        found.append(pretend.Device.waits)
    assert found == [waits + 1, 1, waits + 2]
