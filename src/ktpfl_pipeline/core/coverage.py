"""The methods that the ε of private training covers, found by two rounds on toy data before any real training."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import nn

from ktpfl_pipeline.core.client import dp_sgd, operations
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import NotCoveredError
from ktpfl_pipeline.core.executors.base import Calls, Executor, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, LocalTraining


class _WithoutNoise(SerialExecutor):
    """Replaces private training by training without noise, so that Opacus is not needed."""

    def outcomes(
        self, setting: Any, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        performed: Any = operations.train if operation is dp_sgd.train else operation
        return super().outcomes(setting, phase, performed, calls, progress)


@dataclass(frozen=True, eq=False)
class _Private(Federation):
    """A federation that refuses operations that private training does not allow."""

    executor: Executor = field(default_factory=_WithoutNoise, repr=False, compare=False)

    @property
    def private(self) -> bool:
        return True


@cache
def uncovered(kind: Callable[[], Any]) -> str:
    """Return why the ε of private training does not cover a method with default hyperparameters; empty if it does.

    It covers a method that uses only operations that private training allows. Of a method that cannot be run on toy
    data this is unknown, so it is not covered.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            method, fed = kind(), _toy()
            state, cohort = method.init(fed), list(fed.by_id)
            for t in (1, 2):  # some methods use private samples only of clients that took part in an earlier round
                state, _ = method.round(state, cohort, t, fed)
            method.personal(state, cohort, fed)
    except NotCoveredError:
        return "private samples are used outside plain local training, which ε does not cover"
    except Exception as error:  # of a user's method, such as KeyError for a layer that the toy models lack
        return (
            f"whether ε covers it is unknown, because it fails on toy data ({type(error).__name__}: {error}); a method "
            "that only trains locally may return an empty text from its class method `uncovered`"
        )
    return ""


def _toy() -> _Private:
    """Return a federation of three clients, with four training samples of eight features each, and one hidden layer."""

    def samples(number: int) -> LabeledDataset:
        return LabeledDataset(torch.linspace(-1, 1, 8 * number).view(number, 8), torch.arange(number) % 2)

    def build(name: str) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

    clients = tuple(Client(n, "toy", samples(4), samples(2), samples(2)) for n in range(3))
    training = LocalTraining(epochs=1, batch_size=2)
    compute = Compute("cpu", threads=torch.get_num_threads())
    return _Private(clients, samples(4).inputs, 4, 2, build, training=training, compute=compute)
