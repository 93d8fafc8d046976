"""Clients that give no answer: rounds and evaluations go on without them."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import toy
from scripted import absences

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import ClientsMissing, InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.metrics import LAST
from ktpfl_pipeline.core.setting import Setting
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
            raise ClientsMissing(dict.fromkeys(silent, "is asleep"))
        return super().outcomes(setting, phase, operation, calls, progress)


def run(method: str, silent: Mapping[tuple[str, int], list[int]]) -> engine.Run:
    fed = toy.federation(executor=Unanswered(silent), architectures=("mlp",))
    return engine.run(create(method), fed, SCHEDULE)


@pytest.mark.parametrize(("method", "phase"), [("kt_pfl", "predict"), ("kt_pfl", "distill"), ("fedavg", "train")])
def test_the_round_is_the_one_in_which_they_were_not_there(method: str, phase: str) -> None:
    found = run(method, {(phase, 2): [HIT]})
    with absences({2: {HIT}}):
        other = engine.run(create(method), toy.federation(architectures=("mlp",)), SCHEDULE)
    plain = [replace(r, seconds={}, late=[], reasons={}) for r in found.history]
    assert plain == [replace(r, seconds={}, absent=[]) for r in other.history]
    assert toy.same(found.state, other.state)
    assert toy.same(found.coefficients, other.coefficients)
    assert [(r.late, r.reasons) for r in found.history] == [([], {}), ([HIT], {str(HIT): "is asleep"}), ([], {})]


class Asking(Unanswered):
    """Attempts a round again while fewer than `least` clients are left."""

    def __init__(self, silent: Mapping[tuple[str, int], list[int]], least: int) -> None:
        super().__init__(silent)
        self.least, self.asked = least, list[tuple[int, list[int]]]()

    def enough(self, cohort: Any, out: Mapping[int, str], t: int) -> bool:
        self.asked.append((t, sorted(out)))
        return len(cohort) - len(out) >= self.least


def test_a_round_is_attempted_again_where_the_executor_says_so() -> None:
    several = list(toy.IDS[:3])
    executor = Asking({("train", 2): several}, 3)
    found = engine.run(create("local"), toy.federation(executor=executor, architectures=("mlp",)), SCHEDULE)
    assert [len(r.cohort) for r in found.history] == [5, 5, 5]
    assert [r.late for r in found.history] == [[], [], []]
    assert executor.asked == [(1, []), (2, []), (2, several), (2, []), (3, [])]
    assert [len(r.cohort) for r in run("local", {("train", 2): several}).history] == [5, 2, 5]


def test_a_round_without_anyone_ends_the_run_with_the_reasons() -> None:
    with pytest.raises(InputError, match=rf"^No client is left in round 2\. Clients {toy.IDS[0]}, .* is asleep\.$"):
        run("local", {("train", 2): list(toy.IDS)})


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


def test_a_client_that_never_answers_an_evaluation_has_no_values_and_ends_nothing() -> None:
    everyone, found = run("fedavg", {}), run("fedavg", {("evaluate", 1): [HIT]})
    place, first = toy.IDS.index(HIT), found.history[0]
    for name, values in first.accuracy.items():
        assert math.isnan(values[place])
        assert others(values) == others(everyone.history[0].accuracy[name])
    assert math.isnan(first.loss["test"][place]) and first.stale == [HIT]
    assert [r.accuracy for r in found.history[1:]] == [r.accuracy for r in everyone.history[1:]]


def test_the_only_evaluation_counts_for_the_clients_that_answer() -> None:
    for silent in ({("evaluate", 1): [HIT]}, {("evaluate", 2): [HIT]}):
        alone = toy.federation(executor=Unanswered(silent), architectures=("mlp",))
        (record,) = engine.run(create("fedavg"), alone, Schedule(1)).history
        values = record.accuracy["after_transfer"]
        assert math.isnan(values[toy.IDS.index(HIT)]) and not any(map(math.isnan, others(values)))


def test_a_point_at_which_no_client_was_ever_evaluated_is_left_out() -> None:
    """In the second round adaptation is evaluated for the first time, and no client answers."""
    fed = toy.federation(executor=Unanswered({("evaluate", 4): list(toy.IDS)}), architectures=("mlp",))
    schedule = Schedule(rounds=1 + LAST, adapt_epochs=(1,))
    records = engine.run(create("local"), fed, schedule).history
    assert records[1].stale == list(toy.IDS)
    assert [r.round for r in records if "adapted_1" in r.accuracy] == [3, 4, 5, 6]
    assert records[1].accuracy["after_transfer"] == records[0].accuracy["after_transfer"]


def others(values: list[float]) -> list[float]:
    return [value for place, value in enumerate(values) if place != toy.IDS.index(HIT)]
