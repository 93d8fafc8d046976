"""Class weights of local training: by hand, in every method's loss, whoever computes."""

from contextlib import closing
from typing import Any

import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.private import balanced
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.settings import LocalTraining, Privacy
from ktpfl_pipeline.methods import create

SERVER_STEPS: dict[str, dict[str, Any]] = {name: {"steps": 2} for name in ("fedtgp", "fedgh", "fedgen")}


def federation(weights: Any, **settings: Any) -> Any:
    training = LocalTraining(epochs=1, batch_size=8, learning_rate=0.05, class_weights=weights)
    return toy.federation(3, architectures=("both",), training=training, **settings)


def models(method: str, fed: Any) -> Any:
    made = create(method, SERVER_STEPS.get(method))
    return made.personal(engine.run(made, fed, engine.Schedule(1)).state, fed.by_id, fed)


def test_weights_by_hand() -> None:
    """Three of class 0 and one of class 1 of three classes: 4 / (2 · 3), 4 / (2 · 1), none."""
    weights = balanced(torch.tensor([0, 0, 1, 0]), 3)
    assert weights.tolist() == pytest.approx([2 / 3, 2.0, 0.0])
    assert weights[[0, 0, 1, 0]].mean() == pytest.approx(1.0)


@pytest.mark.parametrize(("weights", "expected", "loss"), [("none", 0.125, 1.0), ("balanced", 0.0, 1.0)])
def test_a_step_by_hand(weights: Any, expected: float, loss: float) -> None:
    """Four equal pixels, x = 1, of classes 0, 0, 0, 1, all weights 0, one step of 0.5.

    The gradient of W_0 is the mean of -1/2 three times and 1/2: -1/4. Weighted, 2/3 · 3 · (-1/2) + 2 · 1/2 is 0.
    """
    module = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    inputs = torch.full((4, 1, 1, 1), 255, dtype=torch.uint8)
    samples = LabeledDataset(inputs, torch.tensor([0, 0, 0, 1]))
    training = LocalTraining(epochs=1, batch_size=4, learning_rate=0.5, class_weights=weights)
    fed = toy.one_client(module, samples, inputs, training=training)
    after = fed.train(fed.initial_models(), 1)[5]
    assert after["1.weight"][0].item() == pytest.approx(expected, abs=1e-15)
    assert fed.current.losses["train"][5] == pytest.approx(loss * 0.6931471805599453)
    assert fed.evaluate(fed.initial_models(), "train")[5].loss == pytest.approx(0.6931471805599453), "never weighted"


@pytest.mark.parametrize(
    "method", ["local", "kt_pfl", "fd", "fedproto", "fedtgp", "lg_fedavg", "fedgen", "fml", "fedkd", "fedmrl", "fedrod"]
)
def test_every_loss_on_private_labels_follows(method: str) -> None:
    assert not toy.same(models(method, federation("balanced")), models(method, federation("none")))


def test_who_computes_changes_nothing() -> None:
    """Clients share a workspace, and each has weights of its own."""
    serial = models("local", federation("balanced"))
    with closing(ProcessesExecutor(2)) as workers:
        for executor in (workers, toy.ReverseExecutor()):
            assert toy.same(models("local", federation("balanced", executor=executor)), serial)


def test_private_training_refuses_them() -> None:
    training = LocalTraining(class_weights="balanced", privacy=Privacy(1.0))
    with pytest.raises(InputError, match=r"^training\.class_weights is balanced"):
        toy.federation(training=training)
