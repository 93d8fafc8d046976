"""The server's end: every phase is a message to each of its clients, and models stay where they are.

A client that gives no sound answer in time is out of the round (`ClientsMissing`), which the engine then runs without
it. What the others answered is remembered for as long as the round lasts, so no client trains twice for it.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ktpfl_flower import encoded, operations
from ktpfl_flower.server.attendance import Attendance, absent
from ktpfl_flower.server.handles import Drawn, Held, named
from ktpfl_flower.server.quorum import Quorum
from ktpfl_flower.wire import STAYS, Left, Packet, dumped, packed, unpacked
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import OWN
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import ClientsMissing, InputError, LostError, diverged
from ktpfl_pipeline.core.executors.base import Calls, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.knowledge.channel import Delivery, decode
from ktpfl_pipeline.core.knowledge.encodings import Buffers
from ktpfl_pipeline.core.setting import DTYPES, Setting, Split
from ktpfl_pipeline.core.weights import Models, Params

logger = logging.getLogger(__name__)
THROWN_AWAY = ("fine_tune", "adapt")
"""Phases whose models are made to be evaluated: they never travel."""
MANY = 2**53
"""Samples of one answer, at most: floats count so far."""


class RealFederation(Federation):
    """A federation whose clients draw their initial models themselves."""

    executor: "RealExecutor"

    def initial_model(self, architecture: str) -> Params:
        """Return the initial weights of an architecture, which the server draws if it looks at them."""
        return Drawn(self, architecture)

    def distill(self, models: Models, teachers: Tensor, batch: Tensor, t: int) -> Models:
        """Return each model fitted to its teacher, which travels in the numbers that its client computes in."""
        return super().distill(models, teachers.to(DTYPES[self.compute.dtype]), batch, t)

    def upload(self, models: Models, batch: Tensor, t: int, chosen: Tensor | None = None) -> list[Delivery]:
        """Return what arrives of each model's logits, which its client encodes; see `Federation.upload`."""
        if chosen is not None or not self._encoded:
            return super().upload(models, batch, t, chosen)
        states, how = self.client_states, (self.knowledge.encoding, self.knowledge.k)
        calls = {n: (params, batch, *how, states.before("upload", n)) for n, params in models.items()}
        found = self.run("predict", encoded.logits, calls)
        states.add("upload", {n: kept for n, (kept, _) in found.items()})
        return [self._read(encoded.as_bytes(found[n][1]), len(batch)) for n in models]

    def distill_delivered(self, models: Models, teachers: list[Delivery], batch: Tensor, t: int) -> Models:
        """Return each model fitted to its teacher, which travels in the bytes of its encoding."""
        if not self._encoded or not all(each.known.all() for each in teachers):
            return super().distill_delivered(models, teachers, batch, t)
        how = (self.knowledge.encoding, self.knowledge.k)
        calls = {
            n: (params, *how, encoded.as_tensors(each.buffers), batch, t)
            for (n, params), each in zip(models.items(), teachers, strict=True)
        }
        return self.run_training("distill", encoded.distill, calls, models, recipe=self.distillation)

    @property
    def _encoded(self) -> bool:
        """Whether all predictions of a batch travel, in an encoding: what else is remembered is the server's alone."""
        how = self.knowledge
        return how.encoding != "float32" and how.cache == 0 and how.select == 1.0

    def _read(self, buffers: Buffers, samples: int) -> Delivery:
        values = decode(self.knowledge, buffers, (samples, self.classes), True).to(DTYPES[self.compute.dtype])
        return Delivery(values, torch.ones(samples, dtype=torch.bool), sum(map(len, buffers)), {})

    def held_out(self, n: int, split: Split, limit: int | None = None) -> LabelledDataset:
        """Refuse: only a client itself looks at its samples."""
        raise InputError(STAYS)

    def pooled_test(self, limit: int) -> LabelledDataset:
        """Refuse: only a client itself looks at its samples."""
        raise InputError(STAYS)


class RealExecutor(SerialExecutor):
    """Runs each client's operation where the client is; those of the server's own models here.

    Attributes:
        attendance: who is there.
        bare: clients that have lost models of their own and made none since.
        resumed: whether the run goes on from a checkpoint of an earlier process.
    """

    def __init__(
        self,
        attendance: Attendance,
        method: str,
        begin: Callable[[Setting], Packet],
        quorum: float = 0.0,
        tries: int = 3,
    ) -> None:
        """Send nothing yet.

        Args:
            attendance: of the clients.
            method: its name in the registry.
            begin: makes what a client is told of a federation before its first phase.
            quorum: the smallest share of a cohort with which a round counts.
            tries: how often a round is attempted.
        """
        super().__init__()
        self.attendance = attendance
        self.resumed = False
        self._method, self._begin, self._quorum = method, begin, Quorum(quorum, tries)
        self._setting: Setting | None = None
        self._known: dict[int, operations.Known] = {}
        self._alive: dict[int, WeakValueDictionary[int, Held]] = {}
        self._round = 0
        self._answered: dict[tuple[int, str], Outcome[Any]] = {}  # in this round, by client and question
        self._lost: set[int] = set()  # clients that lost models in this round
        self._anew: set[int] = set()  # those that lost their models while this process ran
        self.bare: set[int] = set()
        self._revived: dict[int, bool] = {}  # whether a model of the checkpoint is gone, by client, until it is told

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client, as they answer; models among the values are `Held`.

        Raises:
            InputError: if the operation is not offered or gives away what the method does not declare, or a client's
                answer ends the run.
            ClientsMissing: if some clients gave no sound answer in time.
            DivergedError: if some say that what they would send is not finite.
        """
        if not calls or any(isinstance(n, str) for n in calls):
            return super().outcomes(setting, phase, operation, calls, progress)
        name = operations.name_of(operation)
        if name is None:
            raise InputError(
                f"{self._method}'s {phase} is nothing that real clients offer: choose a method from "
                f"{', '.join(operations.TRIED)}."
            )
        operations.check_leaves(name, self._method)
        self.start(setting)
        packets: dict[int, Packet] = {}
        given: Mapping[Any, tuple[Any, ...]] = calls
        for n, arguments in given.items():
            value = packed(tuple(named(argument, n) for argument in arguments))
            beside = {"operation": name, "wanted": phase not in THROWN_AWAY}
            packets[n] = Packet({**value.values, **beside}, value.tensors)
        questions = {n: (n, _digest(packet)) for n, packet in packets.items()}
        known = self._answered
        outcomes: dict[Any, Outcome[Value]] = {n: known[key] for n, key in questions.items() if key in known}
        asked = {
            n: Packet({**packet.values, "keep": sorted(self._alive[n])}, packet.tensors)
            for n, packet in packets.items()
            if n not in outcomes and n in self.attendance.here
        }
        for n in asked:  # which deletes what is not alive
            self.attendance.kept[n] &= set(self._alive[n])
        broken: dict[int, str] = {}
        judged = name == "evaluate" or phase in THROWN_AWAY
        for n, packet in self.attendance.ask("perform", asked, name):
            if isinstance(why := packet.values.get("diverged"), str):
                broken[n] = why[:200]
                continue
            try:
                outcome = self._outcome(n, name, given[n], packet)
            except InputError as error:
                self.attendance.strike(n, f"gave no sound answer to {name}: {error}", unsound=True)
                continue
            if judged and outcome.finite is not None and not outcome.finite:
                broken[n] = "its model is not finite"
                continue
            outcomes[n] = known[questions[n]] = outcome
            progress(phase, len(outcomes), len(calls))
        missing = absent(self.attendance, given.keys() - outcomes.keys())
        if judged:  # a client whose copy diverges is left out of an evaluation; it ends nothing
            missing |= {n: f"diverged when it was to be evaluated ({why})" for n, why in broken.items()}
        if missing:
            raise ClientsMissing(missing)
        if broken:
            raise diverged(broken)
        return outcomes

    def missing(self, setting: Setting, clients: Sequence[int], t: int, least: int | None = None) -> dict[int, str]:
        """Return which of these clients are missing in round t, having let in those that came back; see `Executor`.

        Raises:
            LostError: if one has come back without a model that was its own.
            InputError: if a client is missing before the first round, or no client has its models of the checkpoint
                any more.
        """
        first = self._round == 0 and not self.resumed
        if t != self._round:
            self._round, self._answered, self._lost = t, {}, set()
        self.attendance.wait(clients, self._quorum.of(clients) if least is None else least)
        self._tell_gone()
        self.start(setting)
        if first and (out := absent(self.attendance, setting.by_id)):
            raise InputError(
                f"{ClientsMissing(out)} Before the first round all clients are needed: see to their programs, start "
                "them again if they have ended, and give the same command again, which takes what is finished as it is."
            )
        for n in list(self.attendance.here):
            if lost := set(self._alive[n]) - self.attendance.kept[n]:
                if n in self._lost:  # or one client could have a round begin again and again
                    self.attendance.strike(n, f"came back without models of its own twice in round {t}")
                    continue
                self._lost.add(n)
                for version in lost:
                    del self._alive[n][version]
                self._answered = {key: found for key, found in self._answered.items() if key[0] != n}
                self._anew.add(n)
                self.bare.add(n)
                raise LostError(f"Client {n} came back without models of its own: it goes on as one that joins now.")
        return absent(self.attendance, clients)

    def enough(self, cohort: Sequence[int], out: Mapping[int, str], t: int) -> bool:
        """Return whether round t has its quorum; see `Executor`."""
        return self._quorum.enough(cohort, out, t)

    def revived(self, setting: Setting, value: Any) -> Any:
        """Return a part of a checkpoint with handles for models by name; see `Executor`.

        A model that its client has lost is replaced by the architecture's initial one, with which a client joins; who
        that befell is told when a round begins.
        """
        self.resumed = True
        self._enter(setting)
        match value:
            case {"drawn": str(architecture)}:
                return Drawn(setting, architecture)
            case {"held": [int(n), int(version)], "kinds": dict(kinds)}:
                left = Left(version, {name: (dtype, tuple(shape)) for name, (dtype, shape) in kinds.items()})
                return self._revived_model(setting, n, left)
            case dict():
                return {key: self.revived(setting, part) for key, part in value.items()}
            case list() | tuple():
                return type(value)(self.revived(setting, part) for part in value)
        return value

    def _revived_model(self, setting: Setting, n: int, left: Left) -> Any:
        if n in self.attendance.here:
            lost = left.version not in self.attendance.kept[n]
            self._revived[n] = self._revived.get(n, False) or lost
            if lost:
                return Drawn(setting, setting.by_id[n].architecture) if left.kinds == self._known[n].kinds else {}
        return self._held(n, left)

    @property
    def is_newest(self) -> bool:
        """Whether the clients that are there took part in no other run since, and still have models of this one."""
        here, lost = set(self.attendance.here), list(self._revived.values())
        return bool(here) and here <= self.attendance.told and not (lost and all(lost))

    def start(self, setting: Setting) -> None:
        """Tell the clients of the federation that are there and do not know of it."""
        self._enter(setting)
        new = [n for n in self.attendance.here if n not in self.attendance.told]
        for n, _ in self.attendance.ask("begin", dict.fromkeys(new, self._begin(setting)), "begin") if new else ():
            self.attendance.told.add(n)

    def end(self, models: Mapping[int, Params]) -> None:
        """Tell each client which model is its own now, and let it keep that.

        Raises:
            ClientsMissing: if some are not there, or any more.
        """
        here = {n: packed(named(params, n)) for n, params in models.items() if n in self.attendance.here}
        ended = {n for n, _ in self.attendance.ask("end", here, "end")}
        if missing := absent(self.attendance, models.keys() - ended):
            raise ClientsMissing(missing)

    def _enter(self, setting: Setting) -> None:
        if self._setting is not setting:
            torch.set_num_threads(setting.compute.threads)
            self._known = {n: operations.Known(setting, operations.kinds_at(setting, n)) for n in setting.by_id}
            self._alive = {n: WeakValueDictionary() for n in setting.by_id}
            self._setting = setting

    def _tell_gone(self) -> None:
        """Tell whose models of a checkpoint are gone, before `start` takes the models of other runs from anybody."""
        found, self._revived = self._revived, {}
        gone = [n for n, lost in found.items() if lost and n not in self._anew]
        if gone and len(gone) == len(found):
            raise InputError(
                f"No client has its models of run {self.attendance.run}'s last checkpoint any more: another run was "
                "begun with these clients since, or their folders are gone. To begin anew, delete the checkpoint: "
                "results beside the server's file, or with Kedro the run's folder in data/06_models."
            )
        self.bare.update(gone)
        for n in gone:
            logger.warning(
                "Client %d has not the models of the last checkpoint any more: it begins again with its initial one.",
                n,
            )

    def _outcome(self, n: int, name: str, arguments: tuple[Any, ...], packet: Packet) -> Outcome[Any]:
        """Return what a client answered, checked."""
        given = Packet({"value": packet.values.get("value")}, packet.tensors)
        value, loss, finite = unpacked(given), packet.values.get("loss"), packet.values.get("finite")
        operations.check_answer(name, value, arguments, self._known[n])
        if not (loss is None or type(loss) is float) or not (finite is None or type(finite) is bool):
            raise InputError("its loss is no number.")
        architecture = self._setting.by_id[n].architecture if self._setting else ""
        if (samples := _counts(packet.values.get("samples"), architecture)) is None:
            raise InputError("it says not how many samples it trained on.")
        if finite and not _finite(value):
            raise InputError("its model has numbers that are not finite, and it says that all are.")
        flag = None if finite is None else torch.tensor(finite)
        mean = None if loss is None else torch.tensor(loss, dtype=torch.float64)
        return Outcome(self._handles(n, value), mean, flag, samples)

    def _handles(self, n: int, value: Any) -> Any:
        """Return a value with handles in the place of models that stayed at client n."""
        if isinstance(value, tuple):
            return tuple(self._handles(n, part) for part in value)
        if not isinstance(value, Left):
            return value
        self.attendance.kept[n].add(value.version)
        self.bare.discard(n)
        return self._held(n, value)

    def _held(self, n: int, left: Left) -> Held:
        return self._alive[n].setdefault(left.version, Held(n, left))


def _finite(value: Any) -> bool:
    """Say whether all tensors of models that came with an answer are finite."""
    if isinstance(value, tuple):
        return all(map(_finite, value))
    model = value.model if isinstance(value, Left) else None
    return all(bool(tensor.isfinite().all()) for tensor in (model or {}).values())


def _digest(packet: Packet) -> str:
    """Return what tells one question from another: the SHA-256 sum of its values and tensors."""
    found = hashlib.sha256(json.dumps(packet.values, sort_keys=True).encode())
    for name, tensor in packet.tensors.items():
        dtype, shape, data = dumped(tensor)
        found.update(f"{name} {dtype} {shape}".encode() + data)
    return found.hexdigest()


def _counts(samples: Any, architecture: str) -> dict[str, int] | None:
    """Return samples by architecture, as a client with this one counts them; None where they are no such thing."""
    if not isinstance(samples, dict) or not samples.keys() <= {OWN, architecture}:
        return None
    return samples if all(type(number) is int and 0 <= number <= MANY for number in samples.values()) else None
