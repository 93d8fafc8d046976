"""Checks of the contract of a method on a toy federation. docs/adding_a_method.md explains each check.

`ktpfl check` runs the checks on one method. The tests run them on every method of the registry.
"""

import copy
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ktpfl_pipeline.check import toy
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Observer, Run, Schedule
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, Personal, RoundReport
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, LEDGERS, RoundRecord, Traffic
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import LocalTraining

SCHEDULE = Schedule(rounds=3, participation=0.6)
"""The schedule of checks: three rounds, each with 3 of 5 clients."""
LONG = 12
"""The number of rounds for methods that have not learned enough after the three rounds of `SCHEDULE`."""
TRAINING = LocalTraining(epochs=1, batch_size=8, learning_rate=0.3)
CAUTIOUS = replace(TRAINING, learning_rate=0.1)
"""Training settings for unknown methods. Some methods, such as pFedMe, take much larger steps than SGD."""
SETTINGS = {"what": "toy"}
SILENT = Observer()
OF_STORED_MODELS = {"affinity", "relations"}
"""Server matrices whose columns of absent clients may change: the cohort evaluates stored models of absent clients."""


class BrokenError(Exception):
    """A check failed. The message describes what was found, in one sentence."""


def demand(holds: object, found: str) -> None:
    """Raise BrokenError with the message `found` unless `holds` is true."""
    if not holds:
        raise BrokenError(found)


@dataclass(frozen=True)
class Round:
    """The arguments of a round, with a copy of the state before it, and its results."""

    given: Any
    before: Any
    cohort: list[int]
    t: int
    after: Any
    report: RoundReport


@dataclass
class Recorded:
    """A recorded run of a method: arguments and results of its rounds, and a checkpoint ``<t>.ckpt`` per round."""

    method: Method[Any]
    folder: Path
    training: LocalTraining = TRAINING
    make: Callable[..., Federation] = toy.federation_for
    rounds: list[Round] = field(default_factory=list)

    def federation(self, **settings: Any) -> Federation:
        return self.make(self.method, **{"training": self.training, **settings})

    def run(self) -> Run:
        """Run the method, and record its rounds and checkpoints."""
        file, self.rounds = self.folder / "run.ckpt", []

        def keep(record: RoundRecord) -> None:
            shutil.copy(file, self.folder / f"{record.round}.ckpt")

        with recording(self.method, self.rounds):
            fed = self.federation()
            return engine.run(
                self.method, fed, SCHEDULE, settings=SETTINGS, checkpoint_file=file, observer=Observer(round=keep)
            )

    def resumed(self, fed: Federation, t: int, file: Path, observer: Observer = SILENT) -> Run:
        """Continue the run from the checkpoint of round t, which is copied to `file`."""
        shutil.copy(self.folder / f"{t}.ckpt", file)
        return engine.run(self.method, fed, SCHEDULE, settings=SETTINGS, checkpoint_file=file, observer=observer)


@contextmanager
def recording(method: Method[Any], rounds: list[Round]) -> Iterator[None]:
    original = type(method).round

    def seen(method: Method[Any], state: Any, cohort: list[int], t: int, fed: Federation) -> Any:
        before, asked = copy.deepcopy(state), list(cohort)
        found = original(method, state, cohort, t, fed)
        demand(cohort == asked, f"round {t} changed its argument `cohort` from {asked} to {cohort}")
        if isinstance(found, tuple) and len(found) == 2:  # the engine raises an error for other results
            rounds.append(Round(state, before, asked, t, *found))
        return found

    with patch.object(type(method), "round", seen):
        yield


def timeless(run: Run) -> tuple[Any, ...]:
    """Return the results of a run that do not depend on time: history, coefficients and state."""
    return [replace(record, seconds={}) for record in run.history], run.coefficients, run.state


class ReverseExecutor(SerialExecutor):
    """An executor that runs the clients in reverse order."""

    def outcomes(self, setting: Setting, phase: str, operation: Any, calls: Any, progress: Any) -> dict[Any, Any]:
        return super().outcomes(setting, phase, operation, dict(reversed(calls.items())), progress)


def entries(state: Any) -> dict[str, Any]:
    return {entry.name: getattr(state, entry.name) for entry in fields(state)}


def learns(recorded: Recorded, run: Run) -> None:
    """Check that the mean accuracy on toy images reaches 0.6, after `LONG` rounds if three rounds do not suffice."""
    accuracy, rounds = fmean(run.history[-1].accuracy[AFTER_TRANSFER]), SCHEDULE.rounds
    if accuracy < 0.6:
        rounds = LONG
        done = engine.run(recorded.method, recorded.federation(), Schedule(rounds, evaluate_every=rounds))
        accuracy = fmean(done.history[-1].accuracy[AFTER_TRANSFER])
    demand(
        accuracy >= 0.6,
        f"after {rounds} rounds on toy images the mean accuracy is {accuracy:.2f}, where guessing has "
        f"{1 / toy.CLASSES:.2f} and local training reaches 0.9",
    )


def keeps_a_history(records: list[RoundRecord]) -> None:
    """Check that accuracies and losses of each round are finite, and that the round counts bytes in all ledgers."""
    for record in records:
        for values in (*record.accuracy.values(), *record.loss.values()):
            demand(
                all(math.isfinite(value) for value in values), f"round {record.round} has numbers that are not finite"
            )
        demand(set(record.traffic) == set(LEDGERS), f"round {record.round} counts other bytes than {LEDGERS}")


def leaves_its_arguments(rounds: list[Round]) -> None:
    """Check that no round changed the state that it was given, including the tensors of models."""
    for each in rounds:
        where = toy.difference(each.given, each.before)
        demand(
            not where,
            f"round {each.t} wrote to {where} of the state that it was given: make new tensors (a + b, not a += b or "
            "a.add_(b)), and a new dict for new models ({**state.models, **trained})",
        )


def reports_what_it_exchanges(method: Method[Any], rounds: list[Round]) -> None:
    """Check that each round reports all clients of the cohort, and bytes of exactly the declared `exchanges`."""
    for each in rounds:
        sent = each.report.traffic
        demand(
            list(sent) == each.cohort and set(each.report.after_local) == set(each.cohort),
            f"round {each.t} had the cohort {each.cohort} and reported traffic of {list(sent)} and after_local of "
            f"{list(each.report.after_local)}: report each of the cohort, in its order",
        )
        demand(
            all(isinstance(own, Traffic) for own in sent.values())
            and all(getattr(own, ledger) >= 0 for own in sent.values() for ledger in LEDGERS),
            f"round {each.t} reported traffic that is not a Traffic of bytes of at least 0",
        )
        found = {kind.rpartition("_")[0] for kind in vars(Traffic()) for own in sent.values() if getattr(own, kind)}
        demand(
            found - {"public"} == method.exchanges,
            f"round {each.t} counted bytes of {_words(found - {'public'})}, and the class declares to exchange "
            f"{_words(method.exchanges)}: correct `exchanges`, or the Traffic",
        )


def _words(names: set[str] | frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def leaves_absent_clients(method: Method[Any], rounds: list[Round], fed: Federation) -> None:
    """Check that the last round did not change models or server-matrix rows of clients outside its cohort."""
    last, there = rounds[-1], {n for each in rounds for n in each.cohort}
    cohort, absent = last.cohort, sorted(there - set(last.cohort))
    held, moved = [], set[int]()

    def kept(one: Any, other: Any, what: str) -> None:
        demand(toy.same(one, other), f"round {last.t} changed {what}, of clients outside the cohort {cohort}")

    for name, old in entries(last.before).items():
        new = entries(last.after)[name]
        if isinstance(old, dict) and set(absent) <= set(old) <= set(toy.IDS):  # values by client, such as models
            held.append(name)
            for n in absent:
                kept(old[n], new.get(n), f"{name}[{n}]")
            changed = {n for n in cohort if n in old and not toy.same(old[n], new[n])}
            if name == "models":
                same = sorted(set(cohort) & set(old) - changed)
                demand(not same, f"round {last.t} left the models of {same} unchanged, although they are in its cohort")
            moved |= changed
        if isinstance(old, Tensor) and old.shape[:1] == (len(toy.IDS),):  # a tensor of the server with a row per client
            rows = fed.rows(absent)
            kept(old[rows], new[rows], f"rows {rows.tolist()} of {name}")
            if old.shape == (len(toy.IDS),) * 2 and name not in OF_STORED_MODELS:
                kept(old[:, rows], new[:, rows], f"columns {rows.tolist()} of {name}")
    if type(method).personal is Personal.personal:  # otherwise clients may also use shared parts
        demand(held and moved, f"round {last.t} changed no model of its cohort {cohort}")
        one, other = (method.personal(state, absent, fed) for state in (last.before, last.after))
        kept(one, other, "what `personal` returns")


def takes_one_client(method: Method[Any], fed: Federation) -> None:
    """Check that a round works with a cohort of one client."""
    n = toy.IDS[0]
    _, report = method.round(method.init(fed), [n], 1, fed)
    demand(
        list(report.traffic) == list(report.after_local) == [n],
        f"a round with client {n} only reported {list(report.traffic)}",
    )


def repeats(recorded: Recorded, run: Run) -> None:
    """Check that a run is equal, bit for bit, with another order of clients and other global random generators."""
    before = torch.get_rng_state()
    try:
        torch.manual_seed(99)  # no draw may depend on global generators or change them
        watched = toy.global_generators()
        again = engine.run(recorded.method, recorded.federation(executor=ReverseExecutor()), SCHEDULE)
        moved = not toy.same(toy.global_generators(), watched)
    finally:
        torch.set_rng_state(before)
    where = toy.difference(timeless(run)[2], timeless(again)[2]) or toy.difference(timeless(run), timeless(again))
    advice = "draw from fed.stream('what for', t, n), and keep nothing outside the state"
    demand(not where, f"two runs differ, first in {where}: {advice}")
    demand(not moved, f"a run moved a global generator (torch, NumPy or random): {advice}")


def resumes(recorded: Recorded, run: Run) -> None:
    """Check that a run that is resumed from the checkpoint of round 1 is equal, bit for bit."""
    again = recorded.resumed(recorded.federation(), 1, recorded.folder / "again.ckpt")
    where = toy.difference(timeless(run)[2], timeless(again)[2]) or toy.difference(timeless(run), timeless(again))
    demand(not where, f"a resumed run differs, first in {where}: keep all that crosses rounds in the state")


def leaves_data(fed: Federation, before: Federation) -> None:
    """Check that the samples of a federation are unchanged. `before` is an earlier copy of the federation."""
    for one, other in zip(fed.clients, before.clients, strict=True):
        for split in ("train", "validation", "test"):
            where = toy.difference(getattr(one, split), getattr(other, split))
            demand(not where, f"a round wrote to the {split} samples of client {one.id}")
    demand(toy.same(fed.public, before.public), "a round wrote to the public set")


def checks(method: Method[Any], folder: Path) -> dict[str, Callable[[], None]]:
    """Return the checks of a method by name, in order. The first check runs the method; checkpoints go to `folder`."""
    recorded, runs = Recorded(method, folder, CAUTIOUS), list[Run]()

    def finishes() -> None:
        clean = copy.deepcopy(recorded.federation())
        runs.append(recorded.run())
        keeps_a_history(runs[0].history)
        leaves_data(recorded.federation(), clean)

    return {
        "runs on toy data, and writes to no samples": finishes,
        "learns": lambda: learns(recorded, runs[0]),
        "leaves its arguments as they were": lambda: leaves_its_arguments(recorded.rounds),
        "reports what it exchanges": lambda: reports_what_it_exchanges(method, recorded.rounds),
        "leaves clients outside the cohort as they were": lambda: leaves_absent_clients(
            method, recorded.rounds, recorded.federation()
        ),
        "takes a cohort of one client": lambda: takes_one_client(method, recorded.federation()),
        "repeats bit for bit": lambda: repeats(recorded, runs[0]),
        "resumes bit for bit": lambda: resumes(recorded, runs[0]),
    }
