"""Which clients take part: registered, excluded after an invalid or missing reply, and registered again.

A client is identified by its number. Its address changes each time it is started. The numbers of messages increase, so
a client can refuse a message that was delayed. A client that is excluded or not admitted is told why, for its own log.
"""

import logging
import math
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

from ktpfl_flower.alike import Data, versions
from ktpfl_flower.client.client_file import check_architecture, understood
from ktpfl_flower.server import classes
from ktpfl_flower.server.federation_file import Plan
from ktpfl_flower.server.registration import Link, Registration
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError, named, plural, printable
from ktpfl_pipeline.core.identity import differences
from ktpfl_pipeline.core.validation import LARGEST

logger = logging.getLogger(__name__)
AGAIN = 60.0
"""Seconds after which the log names the awaited clients again."""
RETRY = 30.0
"""Seconds after which a node that was not admitted is asked again to register."""


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

    def __init__(self, link: Link, run: str, seed: int, plan: Plan, public: Data, shape: Sequence[int]) -> None:
        """Send nothing yet. `public` and `shape` describe the public samples."""
        self.run, self.clients = run, dict[int, Registration]()
        self.plan, self._file, self._public, self._shape = plan, plan.file, public, list(shape)
        self.wire: dict[str, Counter[int]] = {"sent": Counter(), "received": Counter()}
        self.here: dict[int, int] = {}
        self.why: dict[int, str] = {}
        self.told: set[int] = set()
        self.kept: dict[int, set[int]] = {}
        self._link, self._request = link, Packet({"seed": seed})
        self._late: dict[str, tuple[int, str]] = {}  # address and kind of each message without a reply in time
        self._asked: set[int] = set()  # addresses that have not replied to the request to register
        self._not_before: dict[int, float] = {}  # when an address that was not admitted is asked again
        self._turned_away: dict[int, str] = {}  # why these addresses were not admitted
        self._said: Counter[tuple[int, str]] = Counter()  # how often each warning was due
        self._registered: dict[int, int] = {}  # the address at which a client registered last
        self._replaced: set[int] = set()  # addresses of clients that have a newer address
        self._numbers: dict[int, int] = {}  # the number of the last message to each client
        self._remembered: Mapping[int, Registration] = {}
        self._logged: tuple[str, float] = "", 0.0  # the last line about a wait, and its time

    def meet(self, known: Mapping[int, Registration]) -> None:
        """Register the clients with which the run starts.

        A client that does not fit is not admitted. It is told why, and may correct its file and register again. So may
        a client whose classes do not fit those of the others. If too many clients fit, those with the lowest numbers
        take part. Nodes that do not reply in time are left out.

        Args:
            known: the clients of an earlier start of the run. If not all register in time, the run continues with the
                registered ones.

        Raises:
            InputError: if too few clients that fit together register in time.
        """
        wanted, start = self.plan.clients, time.monotonic()
        end, complete = start + self._file.patience, math.inf
        self._remembered = known
        while True:
            now = time.monotonic()
            there = set(self._link.addresses())
            for n in [n for n, address in self.here.items() if address not in there]:
                del self.here[n], self.clients[n]
            for address, packet in self._registrations(there):
                with self._admitting(address):
                    self._start_with(self._read(address, packet))
            if len(self.clients) >= wanted:
                lists = {n: said.classes for n, said in self.clients.items()}
                for n, why in classes.misfits(lists, self._file.class_names).items():
                    said = self.clients.pop(n)
                    del self.here[n]
                    self._turn_away(said.address, f"{said.who} {why}")
            complete = min(complete, now) if len(self.clients) >= wanted else math.inf
            if now >= end or (complete < math.inf and (not self._asked or now >= complete + AGAIN)):
                break
            self._log_wait(self.clients, wanted)
            time.sleep(self._link.pulse)
        for n in sorted(self.clients)[wanted:]:
            del self.here[n]
            self._turn_away((said := self.clients.pop(n)).address, f"{said.who} is one more than experiment.clients.")
        silent = ", ".join(map(str, sorted(self._asked)))
        if known and 0 < len(self.clients) < wanted:
            met, self.clients, self.here = self.clients, dict(known), {}
            self.why = dict.fromkeys(known, "has not registered since the server started")
            for said in met.values():
                with self._admitting(said.address):
                    self._readmit(said)
        elif len(self.clients) < wanted:
            here = {*self.here.values()}
            why = "".join(f" {each}" for address, each in self._turned_away.items() if address not in here)
            who = f" Nodes {silent} did not reply to the request to register; check their programs." if silent else ""
            raise InputError(
                f"{plural(len(self.clients), 'client')} registered within {self._file.patience:g} s, but "
                f"experiment.clients is {wanted}.{why} Start or correct the missing clients, or set experiment.clients "
                "to the number of clients with which the run shall start, or raise patience (seconds of wall time) in "
                f"the server's file. Then run the same command again.{who}"
            )
        if silent:
            logger.warning("Nodes %s did not reply to the request to register; the run starts without them.", silent)

    def _start_with(self, said: Registration) -> None:
        """Register a client with which the run starts, if it fits the server.

        Raises:
            InputError: naming the client, and what both have.
        """
        kind, vocabulary = said.data.kind, said.data.vocabulary
        if said.client in self.clients:
            raise InputError(
                f"{said.who} has the same number as node {self.here[said.client]}. Give each client's file a different "
                f"number. If the client was only restarted, wait: it is asked again every {RETRY:g} s, until its old "
                "node has disconnected."
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
        if said.data.columns and self._public.columns and said.data.columns != self._public.columns:
            raise InputError(
                f"{said.who} has other columns than the public set, or the same in another order. Convert its table "
                "with the columns of the public samples' file: ktpfl convert csv TABLE OUT --like FILE."
            )
        if said.shape != self._shape:
            raise InputError(
                f"{said.who} has {kind} of shape {said.shape}, but the public set has the shape {self._shape}."
                " Bring images to one size with image in its file, and texts to one length."
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
        asked = self._asked and f"{plural(len(self._asked), 'connected node')} asked to register"
        turned_away = self._turned_away.keys() - {*self.here.values()}
        out = turned_away and f"{plural(len(turned_away), 'connected node')} not admitted"
        details = [part for part in (there, missing and f"missing {missing}", asked, out) if part]
        line = f"{len(found)} of {wanted} registered ({'; '.join(details or ['no node is connected'])})"
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
                self.exclude(n, f"did not reply to {what} ({said['silent']})", tell="late" in said)
                continue
            self.wire["received"][n] += packet.nbytes
            if "malformed" in said:
                self.exclude(n, f"sent a malformed reply to {what}: {said['malformed']}", unsound=True, tell=True)
            elif "refused" in said:
                self.exclude(n, f"refused {what}: {said['refused']}", unsound=True)
            elif "lost" in said:
                self.exclude(n, f"could not reply to {what}: {said['lost']}")
            else:
                yield n, packet

    def exclude(self, n: int, why: str, unsound: bool = False, tell: bool = False) -> None:
        """Exclude a client until it registers again.

        Args:
            n: the client.
            why: the reason, as the predicate of a sentence.
            unsound: whether the reason is a refusal or an invalid reply.
            tell: whether the client is told, because it does not know the reason itself.

        Raises:
            InputError: if the reply is invalid and the settings end the run then.
        """
        address = self.here.pop(n, None)
        self.why[n] = printable(why[:1000]).rstrip(".")
        line = f"{named(n, self.names)} {self.why[n]}."
        if tell and address is not None:
            self._tell(address, line)
        if unsound and self._file.on_unsound == "stop":
            raise InputError(
                f"{line} Check its program and run the same command again, or set on_unsound to skip to continue "
                "without it."
            )
        self._warn(n, f"{line} It is excluded until it registers again.")

    @property
    def names(self) -> dict[int, str]:
        """The names of the clients that have one, by number."""
        return {n: said.name for n, said in self.clients.items()}

    def _warn(self, n: int, line: str) -> None:
        """Log a warning about a client; of warnings that differ only in numbers, the first and every tenth one."""
        kind = n, re.sub(r"\d[\d.,e+-]*", "", line)
        self._said[kind] += 1
        if (times := self._said[kind]) == 1 or times % 10 == 0:
            logger.warning("%s%s", line, f" (This happened {times} times so far.)" if times > 1 else "")

    def _tell(self, address: int, line: str) -> None:
        """Send a client a line for its own log."""
        packet = self._stamped("note", Packet({"text": line}), time.time_ns())
        self._late |= dict.fromkeys(self._link.send({address: packet}), (address, "note"))

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
            with self._admitting(address):
                self._readmit(self._read(address, packet))

    def _registrations(self, there: set[int]) -> Iterator[tuple[int, Packet]]:
        """Ask the new ones of these nodes to register, and yield the replies that have arrived."""
        for name, packet in self._link.replies(list(self._late)):
            address, kind = self._late.pop(name)
            if kind == "register":
                self._asked.discard(address)
                if "silent" not in packet.values:
                    yield address, packet
            elif "silent" not in packet.values and kind != "note":
                logger.warning("Node %d replied too late to the message %r; this reply is ignored.", address, kind)
        self._asked &= there
        now = time.monotonic()
        self._not_before = {each: end for each, end in self._not_before.items() if each in there and end > now}
        self._turned_away = {each: why for each, why in self._turned_away.items() if each in there}
        fresh = there.difference(self.here.values(), self._asked, self._replaced, self._not_before)
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
            yield address, Packet({"silent": f"no reply within {seconds:g} s", "late": True})

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

    def _read(self, address: int, packet: Packet) -> Registration:
        """Return the registration in a client's reply; raise InputError if the client cannot take part in any run."""
        who, ours = f"The client at node {address}", versions()
        if "malformed" in packet.values:
            raise InputError(f"{who} sent a malformed reply to the request to register: {packet.values['malformed']}")
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

    @contextmanager
    def _admitting(self, address: int) -> Iterator[None]:
        """Do not admit the client at an address if an InputError is raised inside the block."""
        try:
            yield
        except InputError as error:
            self._turn_away(address, str(error))

    def _turn_away(self, address: int, why: str) -> None:
        """Log and tell a client why it is not admitted; it is asked again later, in case it was corrected."""
        if self._turned_away.get(address) != why:
            logger.warning("Node %d is not admitted: %s", address, why)
            self._tell(address, f"This client is not admitted: {why}")
        self._turned_away[address] = why
        self._not_before[address] = time.monotonic() + RETRY

    def _let_in(self, said: Registration) -> None:
        n = said.client
        if self._registered.get(n) != said.address:
            logger.info("%s is registered.", named(n, self.names))
        self._registered[n] = said.address
        self.here[n], self.kept[n] = said.address, set(said.kept)
        self._numbers[n] = max(self._numbers.get(n, 0), said.last)
        self.why.pop(n, None)
        (self.told.add if said.told else self.told.discard)(n)

    def _stamped(self, kind: str, packet: Packet, number: int) -> Packet:
        """Return a message with its kind, its run and its number."""
        return Packet({**packet.values, "kind": kind, "run": self.run, "number": number}, packet.tensors)
