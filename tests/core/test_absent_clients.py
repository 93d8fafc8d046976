"""Clients that give no answer: rounds go on without them, are begun again below the quorum, evaluations stand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import toy
from real_clients import Scripted

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import AbsentError, InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.simulation.reliability import Reliability
from ktpfl_pipeline.methods import create

HIT = toy.IDS[1]
SCHEDULE = Schedule(rounds=3)


class Unanswered(SerialExecutor):
    """Leaves calls of clients unanswered: who, by phase and its how many-th call."""

    def __init__(self, silent: Mapping[tuple[str, int], list[int]]) -> None:
        super().__init__()
        self.silent, self.counts = silent, dict[str, int]()

    def outcomes(self, setting: Setting, phase: str, operation: Any, calls: Any, progress: Any) -> Any:
        self.counts[phase] = self.counts.get(phase, 0) + 1
        silent = [n for n in self.silent.get((phase, self.counts[phase]), ()) if n in calls]
        if silent:
            raise AbsentError(dict.fromkeys(silent, "is asleep"))
        return super().outcomes(setting, phase, operation, calls, progress)


def run(method: str, silent: Mapping[tuple[str, int], list[int]], **reliability: Any) -> engine.Run:
    fed = replace(
        toy.federation(executor=Unanswered(silent), architectures=("mlp",)), reliability=Reliability(**reliability)
    )
    return engine.run(create(method), fed, SCHEDULE)


@pytest.mark.parametrize(("method", "phase"), [("kt_pfl", "predict"), ("kt_pfl", "distill"), ("fedavg", "train")])
def test_the_round_is_the_one_in_which_they_were_not_there(method: str, phase: str) -> None:
    found = run(method, {(phase, 2): [HIT]})
    fed = replace(toy.federation(architectures=("mlp",)), reliability=Scripted(out={2: {HIT}}))
    other = engine.run(create(method), fed, SCHEDULE)
    plain = [replace(r, seconds={}, late=[], reasons={}) for r in found.history]
    assert plain == [replace(r, seconds={}, absent=[]) for r in other.history]
    assert toy.same(found.state, other.state)
    assert toy.same(found.coefficients, other.coefficients)
    assert [(r.late, r.reasons) for r in found.history] == [([], {}), ([HIT], {str(HIT): "is asleep"}), ([], {})]


def test_below_the_quorum_it_is_begun_again_and_then_ends_the_run() -> None:
    several = list(toy.IDS[:3])
    found = run("local", {("train", 2): several}, quorum=0.6, tries=2)
    assert [len(r.cohort) for r in found.history] == [5, 5, 5]
    assert [r.late for r in found.history] == [[], [], []]
    often = {("train", k): several for k in (2, 3)}
    with pytest.raises(InputError, match=rf"Round 2 was begun 2 times .* 2 of 5, .* 3 \(client {several[0]} is asleep"):
        run("local", often, quorum=0.6, tries=2)
    assert [len(r.cohort) for r in run("local", often, quorum=0.4).history] == [5, 2, 5]


def test_what_was_last_measured_stands_for_who_does_not_answer() -> None:
    everyone = run("fedavg", {})
    found = run("fedavg", {("evaluate", 4): [HIT]})  # the first in round 2
    place = toy.IDS.index(HIT)
    first, second, third = found.history
    assert [r.stale for r in found.history] == [[], [HIT], []]
    for name, values in second.accuracy.items():
        assert values[place] == first.accuracy[name][place]
        rest = [value for n, value in enumerate(everyone.history[1].accuracy[name]) if n != place]
        assert [value for n, value in enumerate(values) if n != place] == rest
    assert second.loss["test"][place] == first.loss["test"][place]
    assert third.accuracy["after_transfer"] == everyone.history[2].accuracy["after_transfer"]


def test_a_round_in_which_nothing_stands_is_not_evaluated_and_the_last_one_must_be() -> None:
    found = run("fedavg", {("evaluate", 1): [HIT]})
    assert [bool(r.accuracy) for r in found.history] == [False, True, True]
    assert "test" not in found.history[0].loss
    with pytest.raises(InputError, match=rf"No round was evaluated, and none is left\. Client {HIT} is asleep"):
        alone = toy.federation(executor=Unanswered({("evaluate", 1): [HIT]}), architectures=("mlp",))
        engine.run(create("fedavg"), alone, Schedule(1))
