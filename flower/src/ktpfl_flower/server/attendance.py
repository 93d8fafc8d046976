"""Who of the clients is there: let in by its hello, struck off when no sound answer comes, let in again by another.

A client is known by its number; the address at which it is found is another each time it is started. Every message
has a number of its own, which the answer repeats.
"""

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Annotated, Any, Protocol

from annotated_types import Ge, Le, Lt, MaxLen, MinLen

from ktpfl_flower.alike import versions
from ktpfl_flower.client.client_file import Name, Names, check_architecture, understood
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError, printable
from ktpfl_pipeline.core.identity import differences

logger = logging.getLogger(__name__)
CHANGING = {"told", "kept", "last"}
"""What a hello says of the moment; all else must be as it was when the run began."""
NUMBERS = 2**63
"""Above the numbers of models and messages."""
AWAY = "has not joined again since the server did"
"""Why a client is not there that has said nothing to this process."""
PIXELS = 2**31
"""Numbers of one image, at most, and samples of a split."""
AGAIN = 60.0
"""Seconds after which it is told again who is waited for."""
Number = Annotated[int, Ge(0), Lt(NUMBERS)]


class Link(Protocol):
    """How messages get to clients and back. A client is known to it by an address.

    Attributes:
        place: where clients join, in words.
    """

    place: str

    def addresses(self) -> list[int]:
        """Return the addresses of the clients that are connected now."""

    def ask(self, kind: str, packets: Mapping[int, Packet], seconds: float) -> Iterator[tuple[int, Packet]]:
        """Send each address a message of a kind, and yield the answers as they come within so many seconds.

        A ``silent`` one says why there is none.
        """

    def late(self) -> Iterator[tuple[int, str, Packet]]:
        """Yield the answers that have come after their time, with the kind of what they answer."""

    def pause(self) -> None:
        """Wait a moment."""


@dataclass(frozen=True)
class Hello:
    """What a client says of itself.

    Attributes:
        classes: names of its classes, in the order of its labels.
        seal: of its samples: another where they are others, and nothing else can be read from it.
        told: whether it knows the run.
        kept: numbers of the models of that run that it can read.
        last: the number of the last message that it was to act on.
    """

    client: Annotated[int, Ge(0), Lt(2**31)]
    name: Name
    architecture: Annotated[str, MaxLen(200)]
    sizes: Annotated[list[Annotated[int, Ge(0), Le(PIXELS)]], MinLen(3), MaxLen(3)]
    shape: Annotated[list[Annotated[int, Ge(1), Le(2**16)]], MinLen(1), MaxLen(4)]
    classes: Annotated[Names, MinLen(1)]
    versions: dict[str, str]
    seal: Annotated[str, MaxLen(64)]
    told: bool = False
    kept: list[Number] = field(default_factory=list)
    last: Number = 0

    def lasting(self) -> dict[str, Any]:
        """Return what must be as it was when the run began."""
        return {name: value for name, value in asdict(self).items() if name not in CHANGING}


class Attendance:
    """The clients of one run.

    Attributes:
        run: its name, in hexadecimal digits.
        clients: all that belong to it.
        here: addresses of those that are there.
        why: of the others, why they are not.
        told: those that know the run.
        kept: numbers of the models that those which are there have.
        wire: bytes of packets ``sent`` to each client and ``received`` of it, since this process was started, without
            what the transport adds.
    """

    def __init__(
        self, link: Link, run: str, seed: int, deadline: float, stops: bool = False, classes: Sequence[str] = ()
    ) -> None:
        """Send nothing yet.

        Args:
            link: to the clients.
            run: its name.
            seed: by which clients split their samples.
            deadline: seconds in which a phase is answered.
            stops: whether an answer that cannot be used, or a refusal, ends the run.
            classes: names of the federation's classes; empty leaves them to the clients.
        """
        self.run, self.clients, self._classes = run, dict[int, Hello](), list(classes)
        self.wire: dict[str, Counter[int]] = {"sent": Counter(), "received": Counter()}
        self.here: dict[int, int] = {}
        self.why: dict[int, str] = {}
        self.told: set[int] = set()
        self.kept: dict[int, set[int]] = {}
        self._link, self._hello, self._deadline, self._stops = link, Packet({"seed": seed}), deadline, stops
        self._greeted: dict[int, int] = {}  # the number of each hello that is not answered, by address
        self._replaced: set[int] = set()  # addresses that another has taken the place of
        self._numbers: dict[int, int] = {}  # of the last message to each client
        self._remembered: Mapping[int, Hello] = {}
        self._told: tuple[str, float] = "", 0.0  # what was told of a wait, and when

    def meet(self, wanted: int, seconds: float, known: Mapping[int, Hello]) -> None:
        """Let the clients in that the run begins with; nodes that say nothing until the time is over are left out.

        Args:
            wanted: how many are waited for.
            seconds: how long.
            known: that are remembered: where fewer come in time, the run is theirs, and goes on without the others.

        Raises:
            InputError: if there are not so many in time, or one of them cannot take part.
        """
        end, over = time.monotonic() + seconds, False
        self._remembered = known
        while not over and (len(self.clients) != wanted or self._greeted):
            over = time.monotonic() >= end
            there = set(self._link.addresses())
            for n in [n for n, address in self.here.items() if address not in there]:
                del self.here[n], self.clients[n]
            for address, packet in self._hellos(there):
                self._begin_with(address, packet)
            if len(self.clients) > wanted:
                break
            if self._greeted or len(self.clients) < wanted:
                self._tell_wait(self.clients, wanted)
                self._link.pause()
        silent = ", ".join(map(str, self._greeted))
        if known and 0 < len(self.clients) < wanted:
            self._take_up(known)
        elif len(self.clients) != wanted:
            who = f" No answer to hello came from nodes {silent}: see to their programs." if silent else ""
            raise InputError(
                f"{len(self.clients)} clients were there within {seconds:g} s, and experiment.clients is {wanted}: "
                "start or stop some, set it to their number, or raise patience, in seconds of wall time, in the "
                f"server's file.{who}"
            )
        if silent:
            logger.warning("No answer to hello came from nodes %s, without which the run begins.", silent)

    def _begin_with(self, address: int, packet: Packet) -> None:
        """Let in a client that the run begins with, if it goes together with the others."""
        said = self._read(address, packet)
        if said.client in self.clients:
            raise InputError(
                f"Client {said.client} (node {address}) and node {self.here[said.client]} have one number: give "
                "each client's file another. If it was only started again, give the same command in a minute, when "
                "its old node is gone."
            )
        if self.clients and (first := next(iter(self.clients.values()))).shape != said.shape:
            raise InputError(
                f"Client {said.client} (node {address}) has images of shape {said.shape}, and others "
                f"{first.shape}: set its image."
            )
        check_classes(address, said, [self._classes, *(other.classes for other in self.clients.values())])
        self.clients[said.client] = said
        self._let_in(address, said)

    def _take_up(self, known: Mapping[int, Hello]) -> None:
        """Take up a run that began with these clients with those of them that are there."""
        met, here = self.clients, self.here
        self.clients, self.here, self.why = dict(known), {}, dict.fromkeys(known, AWAY)
        for n, said in met.items():
            self._take_back(here[n], said)

    def resume(self, clients: Mapping[int, Hello]) -> None:
        """Take up a run that began with these clients, and wait until all are there, or the deadline is over."""
        self.clients, self.why = dict(clients), dict.fromkeys(clients, AWAY)
        self.wait(list(clients), len(clients))

    def wait(self, clients: Sequence[int], least: int) -> None:
        """Let in who has come, and wait until so `least` of these clients are there, or the deadline is over."""
        end = time.monotonic() + self._deadline
        self._look()
        while sum(n in self.here for n in clients) < least and time.monotonic() < end:
            self._tell_wait([n for n in clients if n in self.here], least)
            self._link.pause()
            self._look()

    def _tell_wait(self, found: Collection[int], wanted: int) -> None:
        """Tell who is there and who is not, at the start of a wait, where that has changed, and once a minute."""
        names = {n: f"{n} {said.name}".strip() for n, said in {**self._remembered, **self.clients}.items()}
        there = ", ".join(names[n] for n in sorted(found))
        missing = ", ".join(names[n] for n in sorted(names.keys() - found))
        beside = [part for part in (there, missing and f"missing {missing}") if part]
        line = f"{len(found)} of {wanted} there" + (f" ({'; '.join(beside)})" if beside else "")
        now, (before, when) = time.monotonic(), self._told
        if line != before or now >= when + AGAIN:
            logger.info("Waiting for clients at %s: %s.", self._link.place, line)
            self._told = line, now

    def ask(self, kind: str, packets: Mapping[int, Packet], what: str) -> Iterator[tuple[int, Packet]]:
        """Send clients that are there messages, and yield what they answer in time; the others are struck off.

        Args:
            kind: of the messages.
            packets: by client.
            what: they are asked for, in words.

        Raises:
            InputError: if one refuses, and that ends the run.
        """
        waiting = {self.here[n]: n for n in packets}
        asked = {self.here[n]: self._stamped(packet, self._next(n)) for n, packet in packets.items()}
        for address, n in waiting.items():
            self.wire["sent"][n] += asked[address].nbytes
        for address, packet in self._link.ask(kind, asked, self._deadline):
            if address not in waiting:
                logger.warning("The client at node %d answered %s twice; the second is thrown away.", address, what)
                continue
            n, said = waiting[address], packet.values
            if "silent" in said:  # the link's own word
                self.strike(n, f"gave no answer to {what} ({said['silent']})")
                del waiting[address]
                continue
            self.wire["received"][n] += packet.nbytes
            if "refused" in said:  # with a number or, where the message could not be read, without
                self.strike(n, f"refused {what}: {said['refused']}", unsound=True)
            elif said.get("number") != asked[address].values["number"]:
                logger.warning("Client %d answered another question than %s; that is thrown away.", n, what)
                continue
            elif "lost" in said:
                self.strike(n, f"could not answer {what}: {said['lost']}")
            else:
                yield n, packet
            del waiting[address]
        for n in waiting.values():
            self.strike(n, f"gave no answer to {what}")

    def strike(self, n: int, why: str, unsound: bool = False) -> None:
        """Strike a client off until it says hello again.

        Raises:
            InputError: if it is for what it answered, and that ends the run.
        """
        self.here.pop(n, None)
        self.why[n] = printable(why[:1000]).rstrip(".")
        if unsound and self._stops:
            raise InputError(
                f"Client {n} {self.why[n]}. See to its program, and give the same command again, or set on_unsound to "
                "skip, so that it sits out."
            )
        logger.warning("Client %d %s; it sits out until it says hello again.", n, self.why[n])

    def _look(self) -> None:
        """Let in who said hello since, send hello to who is new, and strike off who is gone."""
        there = set(self._link.addresses())
        for n, address in list(self.here.items()):
            if address not in there:
                self.strike(n, "is not connected any more")
        for address, packet in self._hellos(there):
            self._greet_back(address, packet)

    def _hellos(self, there: set[int]) -> Iterator[tuple[int, Packet]]:
        """Send hello to who of those that are there is new, and yield the answers to hello that have come."""
        for address, kind, packet in self._link.late():
            if kind == "hello":
                if self._is_greeted(address, packet) and "silent" not in packet.values:
                    yield address, packet
            elif "silent" not in packet.values:
                logger.warning("Node %d answered %s after its time; that is thrown away.", address, kind)
        self._greeted = {address: number for address, number in self._greeted.items() if address in there}
        fresh = there.difference(self.here.values(), self._greeted, self._replaced)
        asked = {address: self._stamped(self._hello, time.time_ns()) for address in sorted(fresh)}
        self._greeted |= {address: int(packet.values["number"]) for address, packet in asked.items()}
        for address, packet in self._link.ask("hello", asked, 0) if asked else ():
            if "silent" not in packet.values and self._is_greeted(address, packet):
                yield address, packet  # others answer later

    def _is_greeted(self, address: int, packet: Packet) -> bool:
        """Say whether it answers the hello that was sent there, and not one of another run; it is awaited no more."""
        if packet.values.get("number", self._greeted.get(address)) != self._greeted.get(address):
            return False
        return self._greeted.pop(address, None) is not None

    def _greet_back(self, address: int, packet: Packet) -> None:
        """Let in the client that answered a hello, if it is one that may come in."""
        try:
            said = self._read(address, packet)
        except InputError as error:
            logger.warning("Node %d is not let in: %s", address, error)
        else:
            self._take_back(address, said)

    def _take_back(self, address: int, said: Hello) -> None:
        """Let in the client that said this, if it is one of the run's and as it was."""
        try:
            self._check_returned(address, said)
        except InputError as error:
            logger.warning("Node %d is not let in: %s", address, error)
            return
        if (other := self.here.get(said.client)) is not None:
            self._replaced.add(other)
        self._let_in(address, said)
        logger.info("Client %d is there.", said.client)

    def _check_returned(self, address: int, said: Hello) -> None:
        """Check that a client is one of the run's, and the one that it says."""
        who, n = f"Client {said.client} (node {address})", said.client
        if n not in self.clients:
            raise InputError(f"{who} is none of this run's, {sorted(self.clients)}: give its file another number.")
        began, now = (one.lasting() for one in (self.clients[n], said))
        if changes := differences(began, now):
            why = f"is not as it was when the run began ({changes}): put its samples and its file back"
            self.why[n] = why
            raise InputError(f"{who} {why}, or begin another run.")
        if n in self.here and not (said.told and self.kept[n].issubset(said.kept)):
            raise InputError(f"{who} and node {self.here[n]} have one number: give each client's file another.")

    def _read(self, address: int, packet: Packet) -> Hello:
        """Return the hello of a client that may take part by its versions."""
        who = f"The client at node {address}"
        if "refused" in packet.values:
            raise InputError(f"{who} refused hello: {packet.values['refused']}")
        said = understood(Hello, {name: value for name, value in packet.values.items() if name != "number"}, who)
        who = f"Client {said.client} (node {address})"
        if (ours := versions()) != said.versions:
            mend = "install the same"
            if {**said.versions, "processor": ours["processor"]} == ours:
                mend = "another processor rounds differently, so take one of the server's kind"
            self.why[said.client] = f"has {said.versions}, and the server {ours}: {mend}"
            raise InputError(f"{who} {self.why[said.client]}.")
        if prod(said.shape) > PIXELS:
            raise InputError(f"{who} has images of shape {said.shape}, which are larger than any: set its image.")
        check_architecture(said.architecture, who)
        return said

    def _let_in(self, address: int, said: Hello) -> None:
        n = said.client
        self.here[n], self.kept[n] = address, set(said.kept)
        self._numbers[n] = max(self._numbers.get(n, 0), said.last)
        self.why.pop(n, None)
        (self.told.add if said.told else self.told.discard)(n)

    def _next(self, n: int) -> int:
        """Return a number that no message to client n had before, nor one of a server that ended."""
        self._numbers[n] = max(self._numbers[n] + 1, time.time_ns())
        return self._numbers[n]

    def _stamped(self, packet: Packet, number: int) -> Packet:
        """Return a message of this run."""
        return Packet({**packet.values, "run": self.run, "number": number}, packet.tensors)


def absent(attendance: Attendance, clients: Collection[int]) -> dict[int, str]:
    """Return who of some clients is not there, and why."""
    return {n: attendance.why.get(n, "is not there") for n in clients if n not in attendance.here}


def check_classes(address: int, said: Hello, others: Sequence[Sequence[str]]) -> None:
    """Check that a client's labels mean the same as those of others: of two lists of names, one begins the other.

    Raises:
        InputError: naming the client and the first classes that differ.
    """
    for known in filter(None, others):
        for label, (ours, theirs) in enumerate(zip(known, said.classes, strict=False)):
            if ours != theirs:
                who, whole = f"Client {said.client} {said.name}".rstrip(), sorted({*known, *said.classes})
                raise InputError(
                    f"{who} (node {address}) means {theirs!r} by label {label}, and others mean {ours!r}: give all "
                    f"clients' files one list of classes, as in class_names: [{', '.join(whole)}]."
                )
