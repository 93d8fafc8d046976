"""The server's app, and messages over Flower's grid."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from ktpfl_flower.relay import bytes_of, record
from ktpfl_flower.run import REPORT
from ktpfl_flower.wire import Packet, from_bytes, to_bytes
from ktpfl_pipeline.core.errors import InputError

CAUSES = {
    1: "its SuperNode could not load the app: check that ktpfl_flower is installed there",
    2: "its program is not running or failed; its log states the cause",
    3: "no answer before the message expired",
    4: "no answer before the message expired",
    5: "its SuperNode is not connected",
    7: "its SuperNode does not trust the app",
    8: "its SuperNode stopped the app",
}
"""Short explanations of Flower's error codes. Flower's own explanations are paragraphs."""
logger = logging.getLogger(__name__)

server = ServerApp()


class GridLink:
    """Messages over Flower's grid; an address is the number of a node."""

    place, pulse = "the SuperLink of this run", 0.2

    def __init__(self, grid: Grid) -> None:
        """Send nothing yet."""
        self._grid = grid

    def addresses(self) -> list[int]:
        """Return the nodes that are connected."""
        return sorted(self._grid.get_node_ids())

    def send(self, packets: Mapping[int, Packet]) -> list[str]:
        """Send a message to each node, and return the messages' names."""
        messages = [Message(record(to_bytes(packet)), node, "query") for node, packet in packets.items()]
        return list(self._grid.push_messages(messages))

    def replies(self, names: list[str]) -> Iterator[tuple[str, Packet]]:
        """Yield the replies to these messages that have arrived.

        Each reply is fetched by itself: if Flower cannot read one, it loses all that were fetched with it.
        """
        for name in names:
            try:
                found = list(self._grid.pull_messages([name]))
            except (OSError, httpx.HTTPError):  # the SuperLink is gone
                raise
            except Exception as error:
                yield name, Packet({"malformed": f"Flower cannot read it ({type(error).__name__})"})
            else:
                yield from ((name, _answer(message)) for message in found)


def _answer(message: Message) -> Packet:
    if message.has_error():
        code = message.error.code
        return Packet({"silent": CAUSES.get(code, f"Flower's error {code}")})
    try:
        return from_bytes(bytes_of(message.content))
    except InputError as error:
        return Packet({"malformed": str(error)})
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        return Packet({"malformed": f"it is not a record ({type(error).__name__})"})  # raised by Flower's own records


@server.main()  # type: ignore[untyped-decorator,unused-ignore]
def main(grid: Grid, context: Context) -> None:
    """Run the methods of the server's file, which the run's configuration names."""
    from ktpfl_flower.server import job

    logging.basicConfig(format="%(message)s", stream=sys.stdout)  # for when Kedro has not set up logging
    for name, level in {"ktpfl_pipeline": logging.INFO, "ktpfl_flower": logging.INFO, "httpx": logging.WARNING}.items():
        logging.getLogger(name).setLevel(level)
    file = Path(str(context.run_config["federation"]))
    sys.argv = ["python", "-m", "ktpfl_flower.run", str(file)]  # the command that reports show
    logging.getLogger("flwr").addFilter(_without_traceback)
    os.environ.setdefault("COLUMNS", "160")  # the log's width, which is not that of a terminal
    try:
        print(f"{REPORT}{job.run(file, GridLink(grid))}", flush=True)  # noqa: T201
    except InputError as error:
        print(f"Error: {error}", flush=True)  # noqa: T201
        raise error.with_traceback(None) from None


def _without_traceback(record: logging.LogRecord) -> bool:
    """Let Flower log an InputError, whose message says all, without its traceback."""
    if record.exc_info and isinstance(record.exc_info[1], InputError):
        record.exc_info = None
    return True
