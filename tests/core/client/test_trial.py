"""Trials of a training step: what they time, and what they leave alone. No test asks how long anything takes."""

from collections import Counter
from typing import Any, ClassVar

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.client import operations, trial
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.settings import Compute

IMAGES = LabeledDataset(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64))
FEATURES = LabeledDataset(torch.zeros(4, 8, 8), torch.tensor([0, 1, 2, 0]))
WAYS = [Compute("cpu"), Compute("cpu", dtype="bfloat16"), Compute("cpu", memory_format="channels_last")]


def test_steps_are_the_engines_own_in_each_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[Any] = Counter()

    def train(space: Workspace, n: int, *arguments: Any) -> Any:
        seen[space.setting.compute.dtype == "bfloat16", space.format, len(space.split(n, "train"))] += 1
        return operations.train(space, n, *arguments)

    monkeypatch.setattr(trial, "operations", type("Seen", (), {"train": staticmethod(train)}))
    found = trial.step_seconds(toy.build, "both", IMAGES, toy.CLASSES, 24, WAYS)
    assert len(found) == 3
    assert all(seconds > 0 for seconds in found)
    assert {way[:2] for way in seen} == {(way.dtype == "bfloat16", trial_format(way)) for way in WAYS}
    assert {size for *_, size in seen} <= {24, 12, 6, 3}


def trial_format(way: Compute) -> torch.memory_format:
    return {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[way.memory_format]


class Watched(nn.Linear):
    """A layer of a machine whose clock is moved by its forward passes: by so much a sample, the first time by more.

    Attributes:
        now: the seconds.
        cost: of a sample, where products are in float32 and where in bfloat16.
        cold: more seconds, of the first pass of each layer in bfloat16.
        passes: samples of each pass in bfloat16.
    """

    now = 0.0
    cost = (0.01, 0.01)
    cold = 0.0
    passes: ClassVar[list[int]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        reduced = torch.is_autocast_enabled("cpu")
        if reduced:
            Watched.now += 0.0 if hasattr(self, "warm") else Watched.cold
            self.warm = True
            Watched.passes.append(len(inputs))
        Watched.now += Watched.cost[reduced] * len(inputs)
        return super().forward(inputs)


def pretended(patch: pytest.MonkeyPatch, *cost: float, cold: float = 0.0) -> list[float]:
    """Return the trial's seconds for four such layers in float32 and bfloat16, batches of 128."""
    for name, value in {"now": 0.0, "cost": cost, "cold": cold, "passes": []}.items():
        patch.setattr(Watched, name, value)
    patch.setattr(trial, "clock_of", lambda _: lambda: Watched.now)

    def build(_: str) -> nn.Module:
        return nn.Sequential(nn.Flatten(), Watched(64, 8), Watched(8, 8), Watched(8, 8), Watched(8, toy.CLASSES))

    return trial.step_seconds(build, "watched", IMAGES, toy.CLASSES, 128, WAYS[:2])


def test_a_long_step_is_timed_on_a_part_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 128 samples at 10 ms each, 32 take no longer than a step may."""
    assert pretended(monkeypatch, 0.0025, 0.005) == pytest.approx([1.28, 2.56])
    assert set(Watched.passes) == {32}


def test_what_is_slow_once_because_kernels_are_made_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pretended(monkeypatch, 0.05, 0.05, cold=5.0) == pytest.approx([4 * 0.05 * 128] * 2)


@pytest.mark.parametrize("samples", [IMAGES, FEATURES], ids=["images", "features"])
def test_generators_and_threads_stay_as_they_were(samples: LabeledDataset) -> None:
    before, threads = toy.global_generators(), torch.get_num_threads()
    trial.step_seconds(toy.build, "mlp", samples, toy.CLASSES, 1, [Compute("cpu", threads=threads + 1)])
    assert toy.same(toy.global_generators(), before)
    assert torch.get_num_threads() == threads
