"""Which clients take part: registered, excluded after an invalid or missing reply, and registered again.

A client is identified by its number. Its address changes each time it is started. The numbers of messages increase, so
a client can refuse a message that was delayed.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Annotated, Any, Protocol

from annotated_types import Ge, Le, MaxLen, MinLen

from ktpfl_flower.alike import Data, versions
from ktpfl_flower.client.client_file import Name, Names, check_architecture, understood
from ktpfl_flower.server.federation_file import Plan
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError, plural, printable
from ktpfl_pipeline.core.identity import differences
from ktpfl_pipeline.core.validation import LARGEST, Natural, Seed

logger = logging.getLogger(__name__)
AGAIN = 60.0
"""Seconds after which the log names the awaited clients again."""


@dataclass(frozen=True)
class Registration:
    """The description that a client sends when it registers.

    Attributes:
        client: its number.
        name: its name in reports.
        architecture: the architecture of its model.
        data: the kind of its samples, and their vocabulary.
        sizes: the numbers of samples for training, validation and testing.
        shape: the shape of one sample.
        classes: the names of its classes, in the order of its labels.
        versions: the versions that `alike.versions` returns.
        fingerprint: a keyed hash of its samples; it changes with the samples and reveals nothing else.
        told: whether it knows the settings of the run.
        kept: numbers of the stored models of that run that it can read.
        last: the number of the last message that it accepted.
        address: the address for messages to the client, which the server adds.
    """

    client: Natural
    name: Name
    architecture: Annotated[str, MaxLen(200)]
    data: Data
    sizes: Annotated[list[Natural], MinLen(3), MaxLen(3)]
    shape: Annotated[list[Annotated[int, Ge(1), Le(2**16)]], MinLen(1), MaxLen(4)]
    classes: Annotated[Names, MinLen(1)]
    versions: dict[str, str]
    fingerprint: Annotated[str, MaxLen(64)]
    told: bool = False
    kept: list[Seed] = field(default_factory=list)
    last: Seed = 0
    address: int = 0

    @property
    def who(self) -> str:
        """The client in messages."""
        return f"Client {self.client} {self.name}".rstrip() + f" (node {self.address})"

    def lasting(self) -> dict[str, Any]:
        """Return the fields that must not change during a run."""
        changing = ("told", "kept", "last", "address")
        return {name: value for name, value in asdict(self).items() if name not in changing}


class Link(Protocol):
    """The transport of messages; a client is identified by an address.

    Attributes:
        place: where clients connect, in words.
        pulse: seconds between two requests for new replies.
    """

    place: str
    pulse: float

    def addresses(self) -> list[int]:
        """Return the addresses of the clients that are connected now."""

    def send(self, packets: Mapping[int, Packet]) -> list[str]:
        """Send a message to each address, and return the messages' names."""

    def replies(self, names: list[str]) -> Iterator[tuple[str, Packet]]:
        """Yield the replies to these messages that have arrived; ``silent`` has the reason if there will be none."""


class Attendance:
    """The clients of one run.

    Attributes:
        run: the name of the run, in hexadecimal digits.
        plan: the plan in the server's file.
        clients: the registrations of all clients of the run.
        here: addresses of the clients that take part now.
        why: for each other client, the reason why it does not take part.
        told: clients that know the settings of the run.
        kept: numbers of the models that each client that takes part has stored.
        wire: bytes of packets ``sent`` to each client and ``received`` from it since this process was started, without
            what the transport adds.
    """

    def __init__(self, link: Link, run: str, seed: int, plan: Plan, public: Data) -> None:
        """Send nothing yet."""
        self.run, self.clients = run, dict[int, Registration]()
        self.plan, self._file, self._public = plan, plan.file, public
        self.wire: dict[str, Counter[int]] = {"sent": Counter(), "received": Counter()}
        self.here: dict[int, int] = {}
        self.why: dict[int, str] = {}
        self.told: set[int] = set()
        self.kept: dict[int, set[int]] = {}
        self._link, self._request = link, Packet({"seed": seed})
        self._late: dict[str, tuple[int, str]] = {}  # address and kind of each message without a reply in time
        self._asked: set[int] = set()  # addresses that have not replied to the request to register
        self._replaced: set[int] = set()  # addresses of clients that have a newer address
        self._numbers: dict[int, int] = {}  # the number of the last message to each client
        self._remembered: Mapping[int, Registration] = {}
        self._logged: tuple[str, float] = "", 0.0  # the last line about a wait, and its time

    def meet(self, known: Mapping[int, Registration]) -> None:
        """Register the clients with which the run starts; nodes that do not reply in time are left out.

        Args:
            known: the clients of an earlier start of the run. If not all register in time, the run continues with the
                registered ones.

        Raises:
            InputError: if too few or too many clients register in time, or one of them cannot take part.
        """
        wanted, seconds = self.plan.clients, self._file.patience
        end, over = time.monotonic() + seconds, False
        self._remembered = known
        while not over and (len(self.clients) != wanted or self._asked):
            over = time.monotonic() >= end
            there = set(self._link.addresses())
            for n in [n for n, address in self.here.items() if address not in there]:
                del self.here[n], self.clients[n]
            for address, packet in self._registrations(there):
                self._start_with(self._read(address, packet))
            if len(self.clients) > wanted:
                break
            if self._asked or len(self.clients) < wanted:
                self._log_wait(self.clients, wanted)
                time.sleep(self._link.pulse)
        silent = ", ".join(map(str, sorted(self._asked)))
        if known and 0 < len(self.clients) < wanted:
            met, self.clients, self.here = self.clients, dict(known), {}
            self.why = dict.fromkeys(known, "has not registered since the server started")
            for said in met.values():
                with _admitting(said.address):
                    self._readmit(said)
        elif len(self.clients) != wanted:
            who = f" Nodes {silent} did not reply to the request to register; check their programs." if silent else ""
            raise InputError(
                f"{plural(len(self.clients), 'client')} registered within {seconds:g} s, but experiment.clients is "
                f"{wanted}. Start or stop clients, set experiment.clients to their number, or raise patience (seconds "
                f"of wall time) in the server's file.{who}"
            )
        if silent:
            logger.warning("Nodes %s did not reply to the request to register; the run starts without them.", silent)

    def _start_with(self, said: Registration) -> None:
        """Register a client with which the run starts, if it fits the server and the clients that have registered.

        Raises:
            InputError: naming the client, and what both have.
        """
        kind, vocabulary, others = said.data.kind, said.data.vocabulary, list(self.clients.values())
        if said.client in self.clients:
            raise InputError(
                f"{said.who} has the same number as node {self.here[said.client]}. Give each client's file a different "
                "number. If the client was only restarted, run the same command again "
                "in a minute, when its old node has disconnected."
            )
        if kind != self._public.kind:
            raise InputError(
                f"{said.who} has {kind}, but the public set has {self._public.kind}. The server and all clients must "
                "have samples of one kind."
            )
        if vocabulary != self._public.vocabulary:
            raise InputError(
                f"{said.who} has another vocabulary than the public set ({vocabulary}; the public set: "
                f"{self._public.vocabulary}). Use one vocabulary at the server and at all clients: the same arrays "
                "'vocabulary' and 'padding' in .npz files, or the same text.tokenizer."
            )
        if others and others[0].shape != said.shape:
            raise InputError(
                f"{said.who} has {kind} of shape {said.shape}, but the other clients' shape is {others[0].shape}."
                " Bring images to one size with image in its file, and texts to one length."
            )
        for known in (self._file.class_names, *(other.classes for other in others)):
            for label, (ours, theirs) in enumerate(zip(known, said.classes, strict=False)):
                if ours != theirs:
                    whole = json.dumps(sorted({*known, *said.classes}), ensure_ascii=False)  # YAML reads it as names
                    raise InputError(
                        f"{said.who} uses label {label} for {theirs!r}, but other clients use it for {ours!r}. "
                        f"Put the same list of classes into all clients' files, for example class_names: {whole}."
                    )
        self.clients[said.client] = said
        self._let_in(said)

    def wait(self, clients: Sequence[int], least: int) -> None:
        """Register new clients, and wait until `least` of these clients take part, or until the deadline."""
        end = time.monotonic() + self._file.deadline
        self._look()
        while sum(n in self.here for n in clients) < least and time.monotonic() < end:
            self._log_wait([n for n in clients if n in self.here], least)
            time.sleep(self._link.pulse)
            self._look()

    def _log_wait(self, found: Collection[int], wanted: int) -> None:
        """Log which clients have registered and which are missing: at first, after a change, and once per minute."""
        names = {n: f"{n} {said.name}".strip() for n, said in {**self._remembered, **self.clients}.items()}
        there = ", ".join(names[n] for n in sorted(found))
        missing = ", ".join(names[n] for n in sorted(names.keys() - found))
        details = [part for part in (there, missing and f"missing {missing}") if part]
        line = f"{len(found)} of {wanted} registered" + (f" ({'; '.join(details)})" if details else "")
        now, (before, when) = time.monotonic(), self._logged
        if line != before or now >= when + AGAIN:
            logger.info("Waiting for clients at %s: %s.", self._link.place, line)
            self._logged = line, now

    def ask(self, kind: str, packets: Mapping[int, Packet], what: str) -> Iterator[tuple[int, Packet]]:
        """Send messages to clients that take part, and yield their replies; clients without a valid one are excluded.

        Args:
            kind: the kind of the messages.
            packets: the messages by client.
            what: the request in words, as in ``the request for local training``.

        Raises:
            InputError: if a client refuses and the settings end the run then.
        """
        waiting = {self.here[n]: n for n in packets}
        asked: dict[int, Packet] = {}
        for address, n in waiting.items():
            self._numbers[n] = max(self._numbers[n] + 1, time.time_ns())  # larger than in earlier processes
            asked[address] = self._stamped(kind, packets[n], self._numbers[n])
            self.wire["sent"][n] += asked[address].nbytes
        for address, packet in self._exchanged(kind, asked, self._file.deadline):
            n, said = waiting[address], packet.values
            if "silent" in said:  # from the link, not from the client
                self.exclude(n, f"did not reply to {what} ({said['silent']})")
                continue
            self.wire["received"][n] += packet.nbytes
            if "refused" in said:
                self.exclude(n, f"refused {what}: {said['refused']}", unsound=True)
            elif "lost" in said:
                self.exclude(n, f"could not reply to {what}: {said['lost']}")
            else:
                yield n, packet

    def exclude(self, n: int, why: str, unsound: bool = False) -> None:
        """Exclude a client until it registers again.

        Args:
            n: the client.
            why: the reason, as the predicate of a sentence.
            unsound: whether the reason is a refusal or an invalid reply.

        Raises:
            InputError: if the reply is invalid and the settings end the run then.
        """
        self.here.pop(n, None)
        self.why[n] = printable(why[:1000]).rstrip(".")
        if unsound and self._file.on_unsound == "stop":
            raise InputError(
                f"Client {n} {self.why[n]}. Check its program and run the same command again, or set on_unsound to "
                "skip to continue without it."
            )
        logger.warning("Client %d %s. It is excluded until it registers again.", n, self.why[n])

    def absent(self, clients: Collection[int]) -> dict[int, str]:
        """Return which of these clients do not take part, and why."""
        return {n: self.why.get(n, "is not connected") for n in clients if n not in self.here}

    def _look(self) -> None:
        """Register clients that have replied, ask new nodes to register, and exclude clients that disconnected."""
        there = set(self._link.addresses())
        for n, address in list(self.here.items()):
            if address not in there:
                self.exclude(n, "is no longer connected")
        for address, packet in self._registrations(there):
            with _admitting(address):
                self._readmit(self._read(address, packet))

    def _registrations(self, there: set[int]) -> Iterator[tuple[int, Packet]]:
        """Ask the new ones of these nodes to register, and yield the replies that have arrived."""
        for name, packet in self._link.replies(list(self._late)):
            address, kind = self._late.pop(name)
            if kind == "register":
                self._asked.discard(address)
                if "silent" not in packet.values:
                    yield address, packet
            elif "silent" not in packet.values:
                logger.warning("Node %d replied too late to the message %r; this reply is ignored.", address, kind)
        self._asked &= there
        fresh = there.difference(self.here.values(), self._asked, self._replaced)
        asked = {address: self._stamped("register", self._request, time.time_ns()) for address in sorted(fresh)}
        self._asked |= fresh
        for address, packet in self._exchanged("register", asked, 0):
            if "silent" not in packet.values:  # others reply later
                self._asked.discard(address)
                yield address, packet

    def _exchanged(self, kind: str, packets: Mapping[int, Packet], seconds: float) -> Iterator[tuple[int, Packet]]:
        """Send each address a message of a kind, and yield one packet from each.

        The packet is the reply, or has the reason under ``silent`` if no reply arrives within `seconds`.
        """
        waiting = dict(zip(self._link.send(packets), packets, strict=True))
        end, over = time.monotonic() + seconds, False
        while waiting and not over:
            over = time.monotonic() >= end  # look once more, because other replies may have used up the time
            for name, packet in self._link.replies(list(waiting)):
                yield waiting.pop(name), packet
            if waiting and not over:
                time.sleep(self._link.pulse)
        for name, address in waiting.items():
            self._late[name] = address, kind
            yield address, Packet({"silent": f"no reply within {seconds:g} s"})

    def _readmit(self, said: Registration) -> None:
        """Register a client that belongs to the run; raise InputError if it does not or has changed."""
        n = said.client
        if n not in self.clients:
            raise InputError(
                f"{said.who} does not belong to this run, whose clients are {sorted(self.clients)}. Correct the "
                "number in its file."
            )
        if changes := differences(self.clients[n].lasting(), said.lasting()):
            self.why[n] = f"has changed since the run started ({changes}); restore its samples and its file"
            raise InputError(f"{said.who} {self.why[n]}, or start another run.")
        if n in self.here:
            if not (said.told and self.kept[n].issubset(said.kept)):
                raise InputError(
                    f"{said.who} has the same number as node {self.here[n]}. Give each client's file a different "
                    "number."
                )
            self._replaced.add(self.here[n])
        self._let_in(said)
        logger.info("Client %d is registered.", n)

    def _read(self, address: int, packet: Packet) -> Registration:
        """Return the registration in a client's reply; raise InputError if the client cannot take part in any run."""
        who, ours = f"The client at node {address}", versions()
        if "refused" in packet.values:
            raise InputError(f"{who} refused to register: {packet.values['refused']}")
        said = understood(Registration, {**packet.values, "address": address}, who)
        if said.versions != ours:
            fix = "install the server's versions"
            if {**said.versions, "processor": ours["processor"]} == ours:
                fix = "use the server's kind of processor, because others round differently"
            self.why[said.client] = f"has {said.versions}, but the server has {ours}; {fix}"
            raise InputError(f"{said.who} {self.why[said.client]}.")
        if prod(said.shape) > LARGEST:
            raise InputError(
                f"{said.who} has {said.data.kind} of shape {said.shape}, which is too large. Set image in its file to "
                "a smaller size."
            )
        check_architecture(said.architecture, said.who)
        return said

    def _let_in(self, said: Registration) -> None:
        n = said.client
        self.here[n], self.kept[n] = said.address, set(said.kept)
        self._numbers[n] = max(self._numbers.get(n, 0), said.last)
        self.why.pop(n, None)
        (self.told.add if said.told else self.told.discard)(n)

    def _stamped(self, kind: str, packet: Packet, number: int) -> Packet:
        """Return a message with its kind, its run and its number."""
        return Packet({**packet.values, "kind": kind, "run": self.run, "number": number}, packet.tensors)


@contextmanager
def _admitting(address: int) -> Iterator[None]:
    """Log why the client at an address is not admitted."""
    try:
        yield
    except InputError as error:
        logger.warning("Node %d is not admitted: %s", address, error)
