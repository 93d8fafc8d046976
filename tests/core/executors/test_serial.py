"""The serial executor: what it measures and tells while it visits the clients."""

from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.executors.serial import SerialExecutor


def count(space: Workspace, n: int, value: int, loss: float | None = None) -> Outcome[int]:
    return Outcome(value * space.setting.seed + n, None if loss is None else torch.tensor(loss))


@pytest.fixture
def executor() -> SerialExecutor:
    return SerialExecutor()


def test_values_come_in_the_order_of_the_calls(executor: SerialExecutor) -> None:
    found = executor.run(toy.federation(seed=100), "count", count, {20: (1,), 3: (2,), 7: (3,)})
    assert list(found.values.items()) == [(20, 120), (3, 203), (7, 307)]


def test_no_calls_no_values(executor: SerialExecutor) -> None:
    found = executor.run(toy.federation(), "count", count, {})
    assert (found.values, found.losses, found.diverged) == ({}, {}, frozenset())


def test_progress_after_each_client(executor: SerialExecutor) -> None:
    told: list[tuple[str, int, int]] = []
    progress = lambda *what: told.append(what)  # noqa: E731
    executor.run(toy.federation(), "count", count, {20: (1,), 3: (2,), 7: (3,)}, progress)
    executor.run(toy.federation(), "other", count, {3: (2,)}, progress)
    assert told == [("count", 1, 3), ("count", 2, 3), ("count", 3, 3), ("other", 1, 1)]


def test_a_phase_is_timed(executor: SerialExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 11.5])
    monkeypatch.setattr("ktpfl_pipeline.core.executors.base.time.perf_counter", lambda: next(clock))
    assert executor.run(toy.federation(), "train", count, {3: (1,)}).seconds == 1.5


def test_losses_are_of_those_that_trained(executor: SerialExecutor) -> None:
    fed = toy.federation()
    assert executor.run(fed, "train", count, {3: (1, 0.5), 7: (1, 0.25)}).losses == {3: 0.5, 7: 0.25}
    assert executor.run(fed, "predict", count, {3: (1,)}).losses == {}


def test_modules_are_kept_per_architecture_and_dropped_with_the_federation() -> None:
    built: list[str] = []

    def build(name: str) -> Any:
        built.append(name)
        return toy.build(name)

    fed = toy.federation(build=build)
    models = fed.initial_models()
    for name in toy.ARCHITECTURES:
        fed.facts(name)  # found on a module of its own, once
    built.clear()
    for t in (1, 2):
        fed.evaluate(fed.train(models, t), "test")
    assert built == ["linear", "conv", "mlp"]
    other = toy.again(fed, executor=fed.executor)
    other.evaluate(models, "test")
    assert built == ["linear", "conv", "mlp"] * 2


def test_an_error_in_an_operation_comes_through(executor: SerialExecutor) -> None:
    def broken(space: Workspace, n: int) -> Outcome[int]:
        raise ZeroDivisionError(n)

    with pytest.raises(ZeroDivisionError):
        executor.run(toy.federation(), "broken", broken, {3: ()})
    assert executor.run(toy.federation(), "count", count, {3: (0,)}).values == {3: 3}
