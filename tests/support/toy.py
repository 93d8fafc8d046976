"""Toy federations of `ktpfl_pipeline.check.toy` for tests, and executors that script a round or make it fail."""

import copy
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.check import methods, toy
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Observer
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import CurrentRun, Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.settings import Compute
from ktpfl_pipeline.core.work import Cost, cost_of

if TYPE_CHECKING:
    from ktpfl_pipeline.core.metrics import RoundRecord

REPRESENTATIVES = (
    *("kt_pfl", "kt_pfl_likelihood", "feddf", "pfeddf", "fedproto", "fml"),
    *("kt_pfl_params", "fedavg_ft", "per_fedavg_hf", "ditto", "fedamp", "fedfomo", "pfedhn", "fedrep", "apple"),
)
"""One method for each structure of state and each way to train. Other methods use no further code paths."""
ARITHMETICS = {
    "float64": Compute("cpu", dtype="float64"),
    "bfloat16": Compute("cpu", dtype="bfloat16"),
    "contiguous": Compute("cpu", memory_format="contiguous"),
}
ARCHITECTURES, CLASSES, IDS, SIZES = toy.ARCHITECTURES, toy.CLASSES, toy.IDS, toy.SIZES
same, samples, global_generators = toy.same, toy.samples, toy.global_generators
ReverseExecutor, SILENT = methods.ReverseExecutor, methods.SILENT


class Unlucky(nn.Module):
    """The identity, except that in training one batch in fifteen, drawn like dropout, becomes NaN."""

    def forward(self, images: Tensor) -> Tensor:
        return images * float("nan") if self.training and torch.rand(()) > 14 / 15 else images


def build(name: str) -> nn.Module:
    """Return a new module of the toy federation; ``unlucky`` is linear, and its training diverges in some rounds."""
    if name == "unlucky":
        return nn.Sequential(nn.Flatten(), Unlucky(), nn.Linear(64, CLASSES))
    return toy.build(name)


class Toy(Federation):
    """A federation whose architectures are measured once for all tests, because this takes a tenth of a short run."""

    def cost(self, architecture: str) -> Cost:  # type: ignore[override]
        key = (self.build, architecture, self.compute.dtype, self.public.shape[1:])
        if key not in _COSTS:
            _COSTS[key] = cost_of(self, architecture)
        return _COSTS[key]


class _Known(dict[Any, Any]):
    """A cache that becomes empty when it is sent to Ray's workers, which get this module by value.

    The keys come from tests that the workers cannot import. A cache of functools.cache cannot be sent at all.
    """

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()


_COSTS: dict[Any, Cost] = _Known()


def federation(clients: int = 5, **settings: Any) -> Federation:
    """Return a new toy federation on the CPU; see `ktpfl_pipeline.check.toy`."""
    return toy.federation(clients, **{"kind": Toy, "build": build, **settings})


def alike(architecture: str = "linear", clients: int = 5, **settings: Any) -> Federation:
    """Return a toy federation whose clients have one architecture."""
    return federation(clients, architectures=(architecture,), **settings)


def one_client(module: nn.Module, train: LabeledDataset, public: Tensor, **settings: Any) -> Federation:
    """Return a float64 federation of client 5, whose model starts as `module`."""
    client = Client(5, "given", train, validation=train, test=train)
    defaults = {
        "clients": (client,),
        "public": public,
        "public_batch_size": len(public),
        "classes": 2,
        "build": lambda name: copy.deepcopy(module),
        "compute": Compute(device="cpu", dtype="float64"),
    }
    return Federation(**{**defaults, **settings})


def federation_for(method: Method[Any], one: str = "both", **settings: Any) -> Federation:
    """Return a federation with several architectures, or with `one` if the method needs a single architecture."""
    return toy.federation_for(method, one, **{"kind": Toy, "build": build, **settings})


def again(fed: Federation, **changes: Any) -> Federation:
    """Return an equal federation without cached objects, and with `changes` to its fields."""
    return replace(fed, **{"executor": SerialExecutor(), "current": CurrentRun(), **changes})


class Script(SerialExecutor):
    """Replaces the clients' predictions, and keeps the teachers that clients receive.

    Attributes:
        predictions: (N, B, K), the logits on the public batch, with a row per client in the order of `IDS`.
        teachers: (B, K), the probabilities of the last distillation by client, or by architecture at the server.
    """

    def __init__(self, predictions: Tensor) -> None:
        super().__init__()
        self.predictions = predictions
        self.teachers: dict[int | str, Tensor] = {}

    def outcomes(self, setting: Setting, phase: str, operation: Any, calls: Any, progress: Any) -> dict[Any, Any]:
        if phase == "predict":
            return {n: Outcome(self.predictions[IDS.index(n)]) for n in calls}
        if phase in ("distill", "fuse"):
            self.teachers = {n: teacher for n, (_, teacher, *_) in calls.items()}
        return super().outcomes(setting, phase, operation, calls, progress)


def teachers(method: Method[Any], predictions: Tensor, cohort: list[int] | None = None, **settings: Any) -> Any:
    """Return the teachers of `method` by client after a round in which clients predict the logits, (N, B, K)."""
    script = Script(predictions)
    fed = federation(len(predictions), public_batch_size=predictions.shape[1], executor=script, **settings)
    method.round(method.init(fed), [client.id for client in fed.clients] if cohort is None else cohort, 1, fed)
    return script.teachers


class Diverging(SerialExecutor):
    """Makes the weights that a phase trains for one client NaN, while its loss remains finite.

    Attributes:
        n: the client.
        phase: the phase.
    """

    def __init__(self, n: int, phase: str = "train") -> None:
        super().__init__()
        self.n, self.phase = n, phase

    def outcomes(self, setting: Setting, phase: str, operation: Any, calls: Any, progress: Any) -> dict[Any, Any]:
        def broken(space: Any, n: int, *arguments: Any) -> Any:
            outcome = operation(space, n, *arguments)
            return replace(outcome, value=_broken(outcome.value)) if (n, phase) == (self.n, self.phase) else outcome

        return super().outcomes(setting, phase, broken, calls, progress)


class Overflowing(SerialExecutor):
    """Makes the predictions of one client infinite, while its weights remain finite."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def outcomes(self, setting: Setting, phase: str, operation: Any, calls: Any, progress: Any) -> dict[Any, Any]:
        found = super().outcomes(setting, phase, operation, calls, progress)
        if phase == "predict" and self.n in found:
            found[self.n] = replace(found[self.n], value=found[self.n].value * float("inf"))
        return found


def _broken(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _broken(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_broken, value))
    return value * float("nan") if value.is_floating_point() else value


def finite(value: Any) -> bool:
    """Return whether all numbers in a state, or a part of one, are finite."""
    if isinstance(value, Tensor):
        return bool(value.isfinite().all())
    if isinstance(value, Mapping):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    if is_dataclass(value):
        return all(finite(getattr(value, entry.name)) for entry in fields(value))
    return not isinstance(value, float) or math.isfinite(value)


class Watch:
    """Records the rounds that a run reports, and how many of them come before any work of a client."""

    def __init__(self) -> None:
        self.told: list[RoundRecord] = []
        self.resumed: int | None = None
        self.observer = Observer(progress=self.progress, round=self.told.append)

    def progress(self, phase: str, done: int, total: int) -> None:
        if self.resumed is None:
            self.resumed = len(self.told)


def distance(one: dict[int, dict[str, Tensor]], other: dict[int, dict[str, Tensor]]) -> float:
    """Return the largest difference between corresponding numbers of two collections of models."""
    assert one.keys() == other.keys()
    return max(
        float((tensor.double() - other[n][name].double()).abs().max())
        for n, params in one.items()
        for name, tensor in params.items()
    )
