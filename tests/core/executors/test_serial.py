"""The serial executor: what it measures and tells while it visits the clients."""

from typing import Any

import pytest
import toy

from ktpfl_pipeline.core.client.operations import Outcome, Workspace
from ktpfl_pipeline.core.executors.serial import SerialExecutor


def verb(space: Workspace, n: int, value: int, loss: float | None = None) -> Outcome[int]:
    return Outcome(value * space.fed.seed + n, loss)


@pytest.fixture
def executor() -> SerialExecutor:
    return SerialExecutor()


def test_values_come_in_the_order_of_the_calls(executor: SerialExecutor) -> None:
    fed = toy.federation(seed=100)
    values = executor.run(fed, "count", verb, {20: (1,), 3: (2,), 7: (3,)})
    assert list(values.items()) == [(20, 120), (3, 203), (7, 307)]


def test_no_calls_no_values(executor: SerialExecutor) -> None:
    assert executor.run(toy.federation(), "count", verb, {}) == {}


def test_progress_after_each_client(executor: SerialExecutor) -> None:
    told: list[tuple[str, int, int]] = []
    executor.progress = lambda *what: told.append(what)
    executor.run(toy.federation(), "count", verb, {20: (1,), 3: (2,), 7: (3,)})
    executor.run(toy.federation(), "other", verb, {3: (2,)})
    assert told == [("count", 1, 3), ("count", 2, 3), ("count", 3, 3), ("other", 1, 1)]


def test_seconds_add_up_by_phase_and_start_anew(executor: SerialExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 11.5, 20.0, 20.25, 30.0, 37.0])
    monkeypatch.setattr("ktpfl_pipeline.core.executors.serial.time.perf_counter", lambda: next(clock))
    fed = toy.federation()
    executor.run(fed, "train", verb, {3: (1,)})
    executor.run(fed, "train", verb, {3: (1,)})
    assert executor.seconds == {"train": 1.75}
    executor.start_round()
    assert (executor.seconds, executor.losses) == ({}, {})
    executor.run(fed, "train", verb, {3: (1,)})
    assert executor.seconds == {"train": 7.0}


def test_losses_of_the_verbs_that_have_one(executor: SerialExecutor) -> None:
    fed = toy.federation()
    executor.run(fed, "train", verb, {3: (1, 0.5), 7: (1, 0.25)})
    executor.run(fed, "predict", verb, {3: (1,)})
    executor.run(fed, "train", verb, {7: (1, 0.125)})
    assert executor.losses == {"train": {3: 0.5, 7: 0.125}}


def test_modules_are_kept_per_architecture_and_dropped_with_the_federation() -> None:
    built: list[str] = []

    def build(name: str) -> Any:
        built.append(name)
        return toy.build(name)

    fed = toy.federation(build=build)
    models = fed.initial_models()
    built.clear()
    for t in (1, 2):
        fed.evaluate(fed.train(models, t), "test")
    assert built == ["linear", "conv", "mlp"]
    other = toy.again(fed, executor=fed.executor)
    other.evaluate(models, "test")
    assert built == ["linear", "conv", "mlp"] * 2


def test_an_error_in_a_verb_comes_through(executor: SerialExecutor) -> None:
    def broken(space: Workspace, n: int) -> Outcome[int]:
        raise ZeroDivisionError(n)

    with pytest.raises(ZeroDivisionError):
        executor.run(toy.federation(), "broken", broken, {3: ()})
    assert executor.run(toy.federation(), "count", verb, {3: (0,)}) == {3: 3}
