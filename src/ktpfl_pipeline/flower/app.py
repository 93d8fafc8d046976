"""Flower's two apps: `server` runs the engine, `client` answers for one client. Packets are Flower's records here."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower.client.member import Member
from ktpfl_pipeline.flower.client.private import refusal
from ktpfl_pipeline.flower.wire import Packet, check_size, dumped, loaded, values_of

KINDS = ("hello", "begin", "perform", "end")
STYPE = "bytes"
"""How an array of ours is written: its numbers one after another, which no reader can take for a pickle."""
PULSE = 0.2
"""Seconds between two looks for answers."""
logger = logging.getLogger(__name__)

client = ClientApp()
server = ServerApp()


def record(packet: Packet) -> RecordDict:
    """Return a packet as Flower's records."""
    arrays = {name: dumped(tensor) for name, tensor in packet.tensors.items()}
    tensors = {name: Array(dtype, shape, STYPE, data) for name, (dtype, shape, data) in arrays.items()}
    return RecordDict({"values": ConfigRecord({"json": json.dumps(packet.values)}), "tensors": ArrayRecord(tensors)})


def packet_of(content: RecordDict) -> Packet:
    """Return the packet in Flower's records.

    Raises:
        InputError: if there is none.
    """
    values, tensors = content.get("values"), content.get("tensors")
    if not isinstance(values, ConfigRecord) or not isinstance(tensors, ArrayRecord) or len(content) != 2:
        raise InputError("it is no message of ktpfl_pipeline.")
    check_size(sum(len(array.data) for array in tensors.values()))
    if odd := [array.stype for array in tensors.values() if array.stype != STYPE]:
        raise InputError(f"it has an array written as {odd[0]!r}, and ours are written as {STYPE!r}.")
    found = values_of(str(values.get("json")))
    return Packet(found, {name: loaded(array.dtype, array.shape, array.data) for name, array in tensors.items()})


class GridLink:
    """Messages over Flower's grid, whose nodes are the addresses."""

    def __init__(self, grid: Grid, place: str = "the SuperLink of this run") -> None:
        """Send nothing yet; `place` is where clients join."""
        self._grid, self.place = grid, place
        self._waiting: dict[str, tuple[int, str]] = {}  # node and kind of each message that is not answered

    def addresses(self) -> list[int]:
        """Return the nodes that are connected."""
        return sorted(self._grid.get_node_ids())

    def ask(self, kind: str, packets: Mapping[int, Packet], seconds: float) -> Iterator[tuple[int, Packet]]:
        """Send each node a message of a kind, and yield the answers as they come in time."""
        messages = [Message(record(packet), node, f"query.{kind}") for node, packet in packets.items()]
        waiting = dict(zip(self._grid.push_messages(messages), packets, strict=True))
        end, over = time.monotonic() + seconds, False
        while waiting and not over:
            over = time.monotonic() >= end  # one more look: others' answers may have taken the time
            for message in self._pulled(waiting):
                yield waiting.pop(message.metadata.reply_to_message_id), _answer(message)
            if waiting and not over:
                self.pause()
        self._waiting |= {name: (node, kind) for name, node in waiting.items()}
        for node in waiting.values():
            yield node, Packet({"silent": f"none within {seconds:g} s"})

    def late(self) -> Iterator[tuple[int, str, Packet]]:
        """Yield the answers that came after their time."""
        for message in self._pulled(self._waiting) if self._waiting else ():
            node, kind = self._waiting.pop(message.metadata.reply_to_message_id)
            yield node, kind, _answer(message)

    def pause(self) -> None:
        """Wait until it is worth looking again."""
        time.sleep(PULSE)

    def _pulled(self, names: Iterable[str]) -> list[Message]:
        """Return the answers that have come to these messages.

        With one that Flower cannot read all that came with it are lost, and their nodes will have been silent.
        """
        try:
            return list(self._grid.pull_messages(list(names)))
        except (InputError, httpx.HTTPError):  # there is no SuperLink any more
            raise
        except Exception as error:
            logger.warning("Answers came that cannot be read, and are thrown away (%s).", type(error).__name__)
            return []


def _answer(message: Message) -> Packet:
    if message.has_error():
        return Packet({"silent": str(message.error.reason)[:500]})
    try:
        return packet_of(message.content)
    except InputError as error:
        return Packet({"silent": f"what came is none: {error}"})
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return Packet({"silent": f"what came is none ({type(error).__name__})"})  # by Flower's own records


@cache
def member(file: str) -> Member:
    """Return the client of a file; one process answers for it as long as it lives."""
    return Member(Path(file))


def _member(context: Context) -> Member:
    """Return the client that a message is for.

    In Flower's simulation nodes have numbers alone, and each message may find another process: the client is read anew.

    Raises:
        InputError: if nothing says which file is its own, or that cannot be used.
    """
    node, pattern = context.node_config, str(context.run_config.get("clients", ""))
    if (file := node.get("client")) is not None:
        return member(str(file))
    number = node.get("partition-id")
    if number is None:
        raise InputError("the SuperNode was started without --node-config 'client=\"my_client.yml\"'.")
    files = sorted(glob(pattern))
    if int(number) >= len(files):
        raise InputError(
            f"clients is {pattern!r} in the run's configuration, which finds {len(files)} files, and there are more "
            "simulated nodes: set it to a pattern that finds the clients' files, or num-supernodes to their number."
        )
    return Member(Path(files[int(number)]))


def _answering(kind: str) -> Callable[[Message, Context], Message]:
    def answer(message: Message, context: Context) -> Message:
        """Answer a message."""
        try:
            found = _member(context).answer(kind, packet_of(message.content))
        except InputError as error:
            found = refusal(kind, error)
        return Message(record(found), reply_to=message)

    return answer


for _kind in KINDS:
    client.query(_kind)(_answering(_kind))


@server.main()  # type: ignore[untyped-decorator,unused-ignore]
def main(grid: Grid, context: Context) -> None:
    """Run the federation of the server's file, which the run's configuration names."""
    from ktpfl_pipeline.flower.server import serve

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    given: dict[str, Any] = context.run_config
    serve.run(Path(str(given["federation"])), GridLink(grid), float(given["patience"]))
