"""Toy runs on a device and on the CPU. The device is an emulated GPU, or a real GPU with ``--device=cuda``."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import pretend
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import ClientStates, Federation
from ktpfl_pipeline.core.rounds import cohort
from ktpfl_pipeline.core.settings import Compute, LocalTraining
from ktpfl_pipeline.methods import ANY_ARCHITECTURES, create

GPU = "cuda"
PRECISIONS = ("float32", "bfloat16", "channels last")
ORDERED = {"channels last": "float32", "TF32, channels last": "tf32"}
MODELS = {True: ("both", "mlp"), False: ("conv", "linear")}  # with dropout, and without
COHORT = 3
"""The number of clients in a round."""
TRAINING = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "fml": {"common": "linear"},
    "fedtgp": {"steps": 2},
    "fedgh": {"steps": 2},
    "fedgen": {"steps": 2, "noise": 4, "hidden": 8, "batch": 8},
    "fedala": {"first_epochs": 2},
    "local_5x": {"work": 2.0},
    "pfedme": {"inner_steps": 2},
}
"""Hyperparameters that reduce the work of methods."""


@dataclass(frozen=True)
class Device:
    """The device of the tests.

    Attributes:
        real: whether the device is a real GPU. Numbers are then compared up to rounding. Runs have no dropout, because
            a GPU draws other masks than a CPU.
    """

    real: bool

    def there(self) -> AbstractContextManager[pretend.Counts]:
        """Return the context in which the device exists, and which yields the counts of operations on it."""
        return _watched() if self.real else pretend.gpu()

    def counted(self) -> AbstractContextManager[pretend.Counts]:
        """Return the context that yields the counts of operations inside it; use it inside `there`."""
        return _watched() if self.real else pretend.recorded()

    def check_equal(self, found: Any, expected: Any, way: str = "float32") -> None:
        """Check that two results are equal: bit for bit, or on a real GPU up to rounding errors of two rounds.

        `way` is the precision, or ``adam``. If a gradient is almost zero, rounding decides the sign of Adam's step.
        """
        rounding = 0.0 if not self.real else 0.1 if way in ("bfloat16", "tf32", "adam") else 0.01
        close = {"rtol": rounding, "atol": rounding, "equal_nan": True}
        torch.testing.assert_close(plain(found), plain(expected), **close)


@contextmanager
def _watched() -> Iterator[pretend.Counts]:
    """Yield counts of the waits for a real GPU, about which torch warns; other counts stay zero."""
    counts = pretend.Counts()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield counts
        finally:
            torch.cuda.set_sync_debug_mode("default")
    counts.reads = sum("synchronizing CUDA operation" in str(warning.message) for warning in caught)


def build(name: str) -> nn.Module:
    """Return a toy model with a dropout rate of one half, so that scaling by two is exact in bfloat16 too."""
    module = toy.build(name)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.5
    return module


@cache
def _federation(architectures: tuple[str, ...]) -> Federation:
    return toy.federation(architectures=architectures, training=TRAINING, build=build)


def federation(
    name: str,
    device: str = "cpu",
    precision: str = "float32",
    *,
    dropout: bool,
    **settings: Any,
) -> Federation:
    """Return a new toy federation that a method can use, with two architectures if the method allows it."""
    architectures = MODELS[dropout] if name in ANY_ARCHITECTURES else MODELS[dropout][:1]
    order = "channels_last" if precision in ORDERED else "contiguous"
    compute = Compute(device, ORDERED.get(precision, precision), order)
    own = {"compute": compute, "executor": SerialExecutor(), "client_states": ClientStates(), **settings}
    return toy.again(_federation(architectures), **own)


def method_of(name: str) -> Any:
    """Return a method with `HYPERPARAMETERS` that reduce its work."""
    return create(name, HYPERPARAMETERS.get(name))


def rounds(name: str, fed: Federation) -> dict[str, Any]:
    """Return the results of a method after two rounds, with `COHORT` of five clients in each round."""
    fed.claim()  # as the engine does
    method = method_of(name)
    state, losses = method.init(fed), []
    for t in (1, 2):
        fed.current.start_round()
        state, report = method.round(state, cohort.sample(fed, COHORT / len(toy.IDS), t), t, fed)
        losses.append(fed.current.losses)
    models = method.personal(state, toy.IDS, fed)
    assert {tensor.device.type for params in models.values() for tensor in params.values()} == {fed.device.type}
    return {"state": state, "models": models, "losses": losses, "coefficients": report.coefficients}


def run(name: str, fed: Federation, **options: Any) -> dict[str, Any]:
    """Return the results of a run with the engine, evaluated at its end, without wall times."""
    found = engine.run(method_of(name), fed, Schedule(rounds=2, participation=0.6, evaluate_every=2), **options)
    history = [{key: value for key, value in asdict(record).items() if key != "seconds"} for record in found.history]
    return {"state": found.state, "history": history, "coefficients": found.coefficients}


def plain(value: Any) -> Any:
    """Return a result as dictionaries, lists, numbers and tensors on the CPU."""
    if isinstance(value, pretend.There):
        return value.here
    if isinstance(value, Tensor):
        return value.cpu()
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return [ord(letter) for letter in value] if isinstance(value, str) else value
