"""Runs of three real clients and two rounds with an injected fault; the faults are in `client_fault_acts`.

The oracle is a run in one process, in which clients that dropped out of a round are absent. History, matrix and models
of both runs must be equal bit for bit.
"""

import logging
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import yaml
from real_clients import COMPARED, NoLink, deal_out, in_one_process, kept_model, run

from ktpfl_flower.server import attendance
from ktpfl_flower.wire import Packet
from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.runs.progress import SeedProgress

HIT = 1
"""The client with the fault."""
SETTINGS: dict[str, Any] = {"deadline": 0.02, "tries": 2}


class Killed(BaseException):
    """Emulates SIGKILL: no code catches it or cleans up after it."""


class Stage(NoLink):
    """A link that injects faults at moments: the n-th message of an operation to a client, or a write of a file.

    Attributes:
        acts: the actions before a message is delivered, while it is answered, and on its reply.
        files_hit: the actions on writes of a file, by its name: the number of writes so far, and the action.
        mend: the user's action after the run has ended with an error message.
        back: the number of looks at the connected clients after which a stopped client is started again.
    """

    def __init__(self, folder: Path, files: list[Path]) -> None:
        super().__init__(files)
        self.folder = folder
        self.counts: Counter[tuple[str, int]] = Counter()
        self.acts: dict[tuple[str, str, int, int], Callable[..., Any]] = {}
        self.files_hit: dict[tuple[str, int], Callable[[Path], None]] = {}
        self.mend: Callable[[], object] = lambda: None
        self.back: dict[int, int] = {}
        self.changes = self.changed

    def at(self, when: str, operation: str, nth: int, act: Callable[..., Any], client: int = HIT) -> None:
        self.acts[when, operation, nth, client] = act

    def act(self, when: str, operation: str, n: int, *given: Any) -> Any:
        found = self.acts.pop((when, operation, self.counts[operation, n], n), None)
        return found(*given) if found else given[-1] if given else None

    def before(self, kind: str, n: int, packet: Packet) -> None:
        operation = packet.values.get("operation", kind)
        self.counts[operation, n] += 1
        self.act("before", operation, n)

    def answer(self, kind: str, n: int, packet: Packet) -> Packet:
        try:
            with patch.object(self, "writer", n):
                return super().answer(kind, n, packet)
        except Killed:
            self.die(n)
            return Packet({"silent": "node unavailable"})

    def changed(self, kind: str, n: int, answer: Packet) -> Packet | list[Packet] | None:
        operation = self.seen[-1][2].values.get("operation", kind)
        found: Packet | list[Packet] | None = self.act("after", operation, n, answer)
        return found

    writer: int | None = None

    def write(self, partial: Path, content: dict[str, Any]) -> None:
        """Write a checkpoint of a client or the server, after injecting its fault."""
        written = re.sub(r"\.[0-9a-f]+-\d+\.partial$", "", partial.name)
        name = written if self.writer is None else f"client {self.writer}"
        self.counts[name, -1] += 1
        found = self.files_hit.pop((name, self.counts[name, -1]), None)
        if found is not None:
            found(partial)
        WRITE(partial, content)

    def tell(self, shown: SeedProgress, record: Any) -> None:
        """Report a round, after injecting the server's fault at this moment."""
        self.counts["told", -1] += 1
        found = self.files_hit.pop(("told", self.counts["told", -1]), None)
        if found is not None:
            found(self.folder)
        TELL(shown, record)

    def addresses(self) -> list[int]:
        for n in list(self.back):
            self.back[n] -= 1
            if self.back[n] < 0:
                del self.back[n]
                self.start(n)
        return super().addresses()

    def die(self, n: int = HIT, looks: int = 0) -> None:
        """End a client's process, which is started again after this number of looks at the connected clients."""
        self.stop(n)
        self.back[n] = looks


WRITE, TELL = checkpoint._write, SeedProgress.round
Inject = Callable[[Stage], object]


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        what: the description of the fault.
        method: the method that runs.
        inject: the function that injects the fault into a stage.
        out: the clients that drop out because of the fault, by round.
        says: text that the log or the error must contain.
        ends: whether the run ends with this text, and continues when the same command is given again.
        same: whether the result is compared with the oracle. It is not if a model is lost that only the client had.
        beside: settings of the server's file.
    """

    what: str
    method: str
    inject: Inject
    says: str = ""
    out: dict[int, list[int]] = field(default_factory=dict)
    ends: bool = False
    same: bool = True
    beside: dict[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """The outcome of a run: its messages, the number of its starts, its rounds, and its differences from the oracle."""

    said: list[str]
    begun: int
    history: list[Any]
    differs: list[str]


def undergo(fault: Fault, folder: Path) -> Outcome:
    """Inject a fault into a run, follow the run's error message, and compare its result."""
    files = deal_out(folder, fault.method, ("mlp",) * 3, 2, **{**SETTINGS, **fault.beside})
    stage = Stage(folder, files)
    fault.inject(stage)
    said: list[str] = []

    def heard(line: str) -> None:
        if not line.startswith("The server says"):  # in the client's log, what the server's log has too
            said.append(line)

    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard(record.getMessage())  # type: ignore[method-assign]
    logs = [logging.getLogger(name) for name in ("ktpfl_pipeline", "ktpfl_flower")]
    for log in logs:
        log.addHandler(handler)
    try:
        with (
            patch.object(attendance, "RETRY", 0.0),
            patch.object(checkpoint, "_write", stage.write),
            patch.object(SeedProgress, "round", lambda shown, record: stage.tell(shown, record)),  # noqa: PLW0108
        ):
            for begun in range(1, 4):
                try:
                    done = run(folder, stage, patience=0.05)
                    if all(kept_model(folder, n).exists() for n in range(len(files))):
                        return Outcome(said, begun, done.history, differences(folder, done) if fault.same else [])
                    stage.mend()
                except Killed:
                    pass
                except InputError as error:
                    said.append(str(error))
                    stage.mend()
    finally:
        for log in logs:
            log.removeHandler(handler)
    raise AssertionError(f"The run did not end: {said}")


def differences(folder: Path, done: FinishedRun) -> list[str]:
    """Return the differences from a run in one process without the clients that dropped out."""
    out = {r.round: {*r.absent, *r.late, *r.diverged} for r in done.history if {*r.absent, *r.late, *r.diverged}}
    here, models = oracle((folder / "federation.yml").read_text(), tuple((t, *sorted(ns)) for t, ns in out.items()))
    found = []
    for ours, theirs in zip(here.history, done.history, strict=True):
        for name in COMPARED:
            one, other = (without(getattr(record, name), theirs.stale) for record in (ours, theirs))
            if one != other:
                found.append(f"{name} of round {ours.round}")
    if here.coefficients is not None and here.coefficients[-1].tolist() != done.coefficients:
        found.append("the matrix")
    for n, params in models.items():
        if n in done.history[-1].absent and not kept_model(folder, n).exists():
            continue  # the client ended before it had a model
        kept = torch.load(kept_model(folder, n), weights_only=True)
        if not all(torch.equal(kept[name], params[name]) for name in params):
            found.append(f"client {n}'s model")
    return found


def without(value: Any, stale: list[int]) -> Any:
    """Return a part of a record without the values of clients that did not reply in the evaluation."""
    if not stale or not isinstance(value, dict):
        return value
    return {k: [x for n, x in enumerate(v) if n not in stale] for k, v in value.items() if len(v) == 3}


@cache
def oracle(text: str, out: tuple[tuple[int, ...], ...]) -> tuple[engine.Run, dict[int, Any]]:
    """Return the run of a server's file in one process with the clients `out` absent by round, and the final models."""
    with tempfile.TemporaryDirectory() as place:
        asked = yaml.safe_load(text)
        (method,) = asked["methods"]
        deal_out(Path(place), method, ("mlp",) * 3, **{k: v for k, v in asked["experiment"].items() if k != "clients"})
        here, fed = in_one_process(Path(place), out={t: set(ns) for t, *ns in out})
    return here, dict(methods.create(method).personal(here.state, fed.by_id, fed))
