"""The server's end: every phase is a message to each of its clients, and models stay where they are.

What a method holds of a client's model is a handle, `Held`. It can be opened where the model came with the answer, as
it does with methods whose declared exchange is models; else nobody can open it, and the client alone has it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError, LostError
from ktpfl_pipeline.core.executors.contract import Calls, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import DTYPES, Setting, Split
from ktpfl_pipeline.core.weights import Handle, Params
from ktpfl_pipeline.flower import operations
from ktpfl_pipeline.flower.wire import DTYPES as KINDS
from ktpfl_pipeline.flower.wire import STAYS, Initial, Left, Packet, packed, unpacked

THROWN_AWAY = ("fine_tune", "adapt")
"""Phases whose models are made to be evaluated: they never travel."""


class Link(Protocol):
    """How messages get to clients and back. A client is known to it by an address."""

    def addresses(self, wanted: int) -> list[int]:
        """Return the addresses of the clients that are there, once there are so many.

        Raises:
            InputError: if there are not in time.
        """

    def ask(self, kind: str, packets: Mapping[int, Packet]) -> Iterator[tuple[int, Packet]]:
        """Send each address a message of a kind, and yield the answers as they come: a ``silent`` one says why none."""


class Held(Handle):
    """A client's model, which that client has.

    Attributes:
        client: whose.
        version: its number there.
    """

    def __init__(self, client: int, left: Left) -> None:
        """Take what the client said of it."""
        self.client, self.version, self._model = client, left.version, left.model
        self.shapes = {
            name: torch.empty(shape, dtype=KINDS[dtype], device="meta") for name, (dtype, shape) in left.kinds.items()
        }

    def open(self) -> dict[str, Tensor]:
        """Return the model, where it came with the client's answer.

        Raises:
            InputError: if it did not: this method's clients send no models.
        """
        if self._model is None:
            raise InputError(
                f"Client {self.client}'s model would have to leave it, and models are not what this method declares to "
                "exchange: take a method that does, or do without what asks for models."
            )
        return dict(self._model)

    def kept(self) -> Any:
        """Return what a run's last state has of it: the model where it came, else itself."""
        return self if self._model is None else self.open()


class Drawn(Handle):
    """The initial model of an architecture, drawn from the seed where it is looked at: it needs not travel."""

    def __init__(self, setting: Setting, architecture: str) -> None:
        """Draw nothing yet."""
        self.architecture, self._setting = architecture, setting
        with torch.device("meta"):
            module = setting.build(architecture).to(DTYPES[setting.compute.dtype])
        self.shapes = dict(module.state_dict())
        self._model: dict[str, Tensor] | None = None

    def open(self) -> dict[str, Tensor]:
        """Return the model."""
        if self._model is None:
            self._model = dict(Setting.initial_model(self._setting, self.architecture))
        return self._model


class RealFederation(Federation):
    """A federation whose clients draw their initial models themselves."""

    def initial_model(self, architecture: str) -> Params:
        """Return the initial weights of an architecture, which the server draws if it looks at them."""
        return Drawn(self, architecture)

    def held_out(self, n: int, split: Split, limit: int | None = None) -> LabelledDataset:
        """Refuse: only a client itself looks at its samples."""
        raise InputError(STAYS)

    def pooled_test(self, limit: int) -> LabelledDataset:
        """Refuse: only a client itself looks at its samples."""
        raise InputError(STAYS)


@dataclass
class Wire:
    """What went over the wire, by client: bytes of packets, without what the transport adds."""

    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)


class RealExecutor(SerialExecutor):
    """Runs each client's operation where the client is; those of the server's own models here.

    Attributes:
        wire: bytes so far.
    """

    def __init__(
        self, link: Link, addresses: Mapping[int, int], run: str, method: str, begin: Callable[[Setting], Packet]
    ) -> None:
        """Send nothing yet.

        Args:
            link: to the clients.
            addresses: of each client, by its id.
            run: the run's name, in hexadecimal digits.
            method: its name in the registry.
            begin: makes what the clients are told of a federation before the first phase.
        """
        super().__init__()
        self.wire = Wire()
        self._link, self._addresses, self._run, self._method, self._begin = link, addresses, run, method, begin
        self._setting: Setting | None = None
        self._known: dict[int, operations.Known] = {}
        self._alive: dict[int, WeakValueDictionary[int, Held]] = {}

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client, as they answer; models among the values are `Held`.

        Raises:
            InputError: if the operation is not offered or gives away what the method does not declare, or a client's
                answer is none.
            LostError: if a client has lost a model.
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
        for n, arguments in calls.items():
            value = packed(tuple(_named(argument, int(n)) for argument in arguments))
            beside = {"operation": name, "keep": sorted(self._alive[int(n)]), "wanted": phase not in THROWN_AWAY}
            packets[int(n)] = Packet({**value.values, **beside}, value.tensors)
        outcomes: dict[Any, Outcome[Value]] = {}
        given: Mapping[Any, tuple[Any, ...]] = calls
        for client, packet in self.ask("perform", packets):
            with answering(client):
                outcomes[client] = self._outcome(client, name, given[client], packet)
            progress(phase, len(outcomes), len(calls))
        return outcomes

    def ask(self, kind: str, packets: Mapping[int, Packet]) -> Iterator[tuple[int, Packet]]:
        """Send messages of this run, and yield the answers that are no refusals.

        Raises:
            InputError: if a client refuses.
            LostError: if a client has lost what the message is about.
        """
        asked = {n: Packet({**packet.values, "run": self._run}, packet.tensors) for n, packet in packets.items()}
        for n, packet in asked.items():
            self.wire.sent[n] = self.wire.sent.get(n, 0) + packet.nbytes
        clients = {self._addresses[n]: n for n in asked}
        for address, packet in self._link.ask(kind, {self._addresses[n]: packet for n, packet in asked.items()}):
            n = clients[address]
            self.wire.received[n] = self.wire.received.get(n, 0) + packet.nbytes
            if "lost" in packet.values:
                self._setting = None  # who knows nothing of the run is told of it again
                raise LostError(str(packet.values["lost"]))
            check_answered(f"Client {n}", kind, packet)
            yield n, packet

    def start(self, setting: Setting) -> None:
        """Tell the clients of the federation, once."""
        if self._setting is setting:
            return
        torch.set_num_threads(setting.compute.threads)
        self._known = {n: operations.Known(setting, operations.kinds_at(setting, n)) for n in setting.by_id}
        self._alive = {n: WeakValueDictionary() for n in setting.by_id}
        told = self._begin(setting)
        for _ in self.ask("begin", dict.fromkeys(setting.by_id, told)):
            pass
        self._setting = setting

    def end(self, models: Mapping[int, Params]) -> None:
        """Tell each client which model is its own now, and let it keep that."""
        for _ in self.ask("end", {n: packed(_named(params, n)) for n, params in models.items()}):
            pass

    def close(self) -> None:
        """Let go of what was loaded; the next phase tells the clients anew."""
        super().close()
        self._setting = None

    def _outcome(self, n: int, name: str, arguments: tuple[Any, ...], packet: Packet) -> Outcome[Any]:
        """Return what a client answered, checked."""
        given = Packet({"value": packet.values.get("value")}, packet.tensors)
        value, loss, finite = unpacked(given), packet.values.get("loss"), packet.values.get("finite")
        operations.check_answer(name, value, arguments, self._known[n])
        if not (loss is None or type(loss) is float) or not (finite is None or type(finite) is bool):
            raise InputError("its loss is no number.")
        if (samples := _counts(packet.values.get("samples"))) is None:
            raise InputError("it says not how many samples it trained on.")
        flag = None if finite is None else torch.tensor(finite)
        mean = None if loss is None else torch.tensor(loss, dtype=torch.float64)
        return Outcome(self._handles(n, value), mean, flag, samples)

    def _handles(self, n: int, value: Any) -> Any:
        """Return a value with handles in the place of models that stayed at client n."""
        if isinstance(value, tuple):
            return tuple(self._handles(n, part) for part in value)
        if not isinstance(value, Left):
            return value
        held = Held(n, value)
        self._alive[n][held.version] = held
        return held


class answering:
    """Names the client in an error about its answer."""

    def __init__(self, n: int) -> None:
        """Remember whose answer is read."""
        self._n = n

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Say whose answer it was."""
        if isinstance(error, InputError) and not isinstance(error, LostError):
            raise InputError(
                f"Client {self._n} gave no sound answer: {error} Its program may be another version, or broken: see to "
                "it, and begin again without it."
            ) from error


def check_answered(who: str, kind: str, packet: Packet) -> None:
    """Raise an `InputError` where a client refused a message of a kind, or said nothing."""
    if "refused" in packet.values:
        raise InputError(f"{who} refused {kind}: {packet.values['refused']}")
    if "silent" in packet.values:
        raise InputError(
            f"{who} gave no answer to {kind} ({packet.values['silent']}): see to its program, and begin again."
        )


def _named(value: Any, n: int) -> Any:
    """Return an argument with the names of models that client n has, or can draw, in their places."""
    if isinstance(value, Held):
        if value.client == n:
            return Left(value.version)
        return value.open()
    if isinstance(value, Drawn):
        return Initial(value.architecture)
    return tuple(_named(part, n) for part in value) if isinstance(value, tuple) else value


def _counts(samples: Any) -> dict[str, int] | None:
    """Return samples by architecture; None where they are no such thing."""
    if not isinstance(samples, dict) or not all(type(n) is int and 0 <= n < math.inf for n in samples.values()):
        return None
    return {str(name): n for name, n in samples.items()}
