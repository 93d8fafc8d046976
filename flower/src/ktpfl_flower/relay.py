"""The client's app: it passes each message on to the client's own process, which has the samples, and its answer back.

Flower starts a process for each message and runs the app that the server sent in it. So this app has nothing to protect
and loads in a moment: what answers is the code that is installed at the client (`join`).
"""

from collections.abc import Callable
from glob import glob
from multiprocessing.connection import Client
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ktpfl_flower.frames import Frame

KINDS = ("hello", "begin", "perform", "end")
STYPE = "bytes"
"""The name of our way to write an array: its numbers one after another, which no reader can take for a pickle."""

client = ClientApp()


def record(frame: Frame) -> RecordDict:
    """Return a message as Flower's records."""
    tensors = {name: Array(dtype, shape, STYPE, data) for name, (dtype, shape, data) in frame.arrays.items()}
    return RecordDict({"values": ConfigRecord({"json": frame.text}), "tensors": ArrayRecord(tensors)})


def frame_of(content: RecordDict) -> Frame:
    """Return the message in Flower's records.

    Raises:
        ValueError: if there is none.
    """
    values, tensors = content.get("values"), content.get("tensors")
    if not isinstance(values, ConfigRecord) or not isinstance(tensors, ArrayRecord) or len(content) != 2:
        raise ValueError("it is no message of ktpfl_flower.")
    if odd := [array.stype for array in tensors.values() if array.stype != STYPE]:
        raise ValueError(f"it has an array written as {odd[0]!r}, and ours are written as {STYPE!r}.")
    arrays = {name: (array.dtype, tuple(array.shape), array.data) for name, array in tensors.items()}
    return Frame(str(values.get("json")), arrays)


def answer(kind: str, frame: Frame, context: Context) -> Frame:
    """Return a client's answer to a message of a kind.

    Raises:
        OSError: if the client's own process is not there.
    """
    if (socket := context.node_config.get("client")) is not None:
        with Client(str(socket), "AF_UNIX") as connection:
            connection.send_bytes(kind.encode())
            connection.send_bytes(frame.to_bytes())
            return Frame.from_bytes(connection.recv_bytes())
    from ktpfl_flower.client.answering import answered, refused  # in Flower's simulation all is one process
    from ktpfl_flower.client.member import Member

    number, pattern = context.node_config.get("partition-id"), str(context.run_config.get("clients", ""))
    if number is None:
        return refused(kind, "the SuperNode was not started by python -m ktpfl_flower.join.")
    files = sorted(glob(pattern))
    if int(number) >= len(files):
        return refused(
            kind,
            f"clients is {pattern!r} in the run's configuration, which matches {len(files)} files, and there are more "
            "simulated nodes: give a pattern that matches the clients' files, or set num-supernodes to their number.",
        )
    return answered(Member(Path(files[int(number)])), kind, frame)


def _answering(kind: str) -> Callable[[Message, Context], Message]:
    def answer_message(message: Message, context: Context) -> Message:
        """Answer a message."""
        return Message(record(answer(kind, frame_of(message.content), context)), reply_to=message)

    return answer_message


for _kind in KINDS:
    client.query(_kind)(_answering(_kind))
