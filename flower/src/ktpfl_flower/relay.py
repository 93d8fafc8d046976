"""The client's app: it passes each message to the client's own process, which has the samples, and returns the reply.

Flower starts a process for each message and runs the app that the server sent in it. So this app contains nothing to
protect and loads fast; the code that is installed at the client replies (`join`).
"""

from multiprocessing.connection import Client

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

STYPE = "bytes"
"""The name of our encoding, which no reader interprets as a pickle."""

client = ClientApp()


def record(message: bytes) -> RecordDict:
    """Return a message as Flower's records."""
    return RecordDict({"message": ArrayRecord({"bytes": Array("uint8", (len(message),), STYPE, message)})})


def bytes_of(content: RecordDict) -> bytes:
    """Return the message in Flower's records.

    Raises:
        ValueError: if the records are not a message of this package.
    """
    arrays = content.get("message")
    if not isinstance(arrays, ArrayRecord) or list(arrays) != ["bytes"] or arrays["bytes"].stype != STYPE:
        raise ValueError("it is not a message of ktpfl_flower.")
    return bytes(arrays["bytes"].data)


def answer(message: bytes, context: Context) -> bytes:
    """Return a client's reply to a message.

    Raises:
        OSError: if the client's own process is not running.
        ValueError: if the SuperNode does not name its socket.
    """
    if (socket := context.node_config.get("client")) is None:
        raise ValueError("Start the SuperNode with python -m ktpfl_flower.join.")
    with Client(str(socket), "AF_UNIX") as connection:
        connection.send_bytes(message)
        return connection.recv_bytes()


@client.query()  # type: ignore[untyped-decorator,unused-ignore]
def _reply(message: Message, context: Context) -> Message:
    return Message(record(answer(bytes_of(message.content), context)), reply_to=message)
