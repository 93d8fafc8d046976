"""Trials of a training step: what they time, and what they leave alone. No test asks how long anything takes."""

from collections import Counter
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import trial
from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.setting import Compute

IMAGES = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
WAYS = [Compute("cpu"), Compute("cpu", dtype="bfloat16"), Compute("cpu", memory_format="channels_last")]


def test_steps_are_the_engines_own_in_each_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[Any] = Counter()

    def train(space: Workspace, n: int, *arguments: Any) -> Any:
        seen[space.reduced, space.format, len(space.split(n, "train"))] += 1
        return operations.train(space, n, *arguments)

    monkeypatch.setattr(trial, "operations", type("Seen", (), {"train": staticmethod(train)}))
    found = trial.step_seconds(toy.build, "both", IMAGES, toy.CLASSES, 24, WAYS)
    assert len(found) == 3
    assert all(seconds > 0 for seconds in found)
    assert {way[:2] for way in seen} == {(way.dtype == "bfloat16", trial_format(way)) for way in WAYS}
    assert {size for *_, size in seen} <= {24, 12}


def trial_format(way: Compute) -> torch.memory_format:
    return {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[way.memory_format]


def test_a_long_step_is_timed_on_a_part_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 128 samples at 10 ms each, 32 take no longer than a step may."""
    sizes: list[int] = []

    def seconds(space: Workspace, size: int, steps: int = 1) -> float:
        sizes.append(size)
        return 0.01

    monkeypatch.setattr(trial, "_seconds", seconds)
    assert trial.step_seconds(toy.build, "linear", IMAGES, toy.CLASSES, 128, WAYS[:2]) == pytest.approx([1.28, 1.28])
    assert sizes == [8, 8, 8, 16, 32, 32, 32] + [32, 32] * trial.TURNS


def test_what_is_hopeless_is_not_timed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: Counter[str] = Counter()

    def seconds(space: Workspace, size: int, steps: int = 1) -> float:
        timed[space.setting.compute.dtype] += 1
        return 0.004 if space.reduced else 0.001

    monkeypatch.setattr(trial, "_seconds", seconds)
    assert trial.step_seconds(toy.build, "linear", IMAGES, toy.CLASSES, 8, WAYS[:2]) == [0.008, 0.032]
    assert timed == {"float32": 3 + trial.TURNS, "bfloat16": 2}
    monkeypatch.setattr(trial, "LONG", 0.03)  # and what takes that long for a few samples, not even twice
    timed.clear()
    trial.step_seconds(toy.build, "linear", IMAGES, toy.CLASSES, 8, WAYS[:2])
    assert timed == {"float32": 3 + trial.TURNS, "bfloat16": 1}


@pytest.mark.parametrize("like", [IMAGES, torch.zeros(4, 8, 8)], ids=["images", "features"])
def test_generators_and_threads_stay_as_they_were(like: torch.Tensor) -> None:
    before, threads = toy.global_generators(), torch.get_num_threads()
    trial.step_seconds(toy.build, "mlp", like, toy.CLASSES, 1, [Compute("cpu", threads=threads + 1)])
    assert toy.same(toy.global_generators(), before)
    assert torch.get_num_threads() == threads
