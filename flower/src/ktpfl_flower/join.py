"""Join a federation: ``python -m ktpfl_flower.join my_client.yml --insecure --superlink 192.0.2.1:8000``.

This process has the samples and replies for the client, with the code that is installed here. It starts Flower's
SuperNode, which passes messages on and runs the app that the server sent; that app reaches this process only by a
socket.
"""

import argparse
import logging
import os
import sys
import tempfile
import threading
from multiprocessing.connection import Listener
from pathlib import Path

from ktpfl_flower import watched
from ktpfl_flower.client.answering import serve
from ktpfl_flower.client.member import Member
from ktpfl_pipeline.core.errors import InputError

logger = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run a client until it is stopped; options that are not known here are passed to the SuperNode.

    Returns 1 if the client ends by itself, so that a supervisor can start it again.
    """
    parser = argparse.ArgumentParser("python -m ktpfl_flower.join", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the client's file")
    parser.add_argument(
        "--socket", type=Path, help="reply at this socket and start no SuperNode; start one under another account"
    )
    parser.epilog = "All other options go to flower-supernode: --superlink, --insecure, --root-certificates, ..."
    asked, others = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        member = Member(asked.file.resolve())
        member.check()
    except InputError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory() as folder:
        place = asked.socket or Path(folder, "client")
        listener = Listener(str(place), "AF_UNIX")
        if asked.socket:
            os.chmod(place, 0o660)  # the SuperNode's account must be in the socket's group
            logger.info("Client %d replies at %s.", member.own.client, place)
            serve(member, listener)
        threading.Thread(target=serve, args=(member, listener), daemon=True).start()
        _supernode(place, others)
    print(  # noqa: T201
        "The SuperNode ended; its output states the cause. If the SuperLink was restarted, it no longer knows this "
        "client: run the same command again.",
        file=sys.stderr,
    )
    return 1


def _supernode(socket: Path, options: list[str]) -> int:
    """Run a SuperNode that ends when this process does, whatever ends it, and return its exit status."""
    port = str(watched.free_port())
    command = [str(Path(sys.executable).parent / "flower-supernode"), *options]
    command += ["--port", port, "--node-config", f'client="{socket}"']
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )  # it starts Flower's other programs
    quick = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", **os.environ, "PATH": path}
    with watched.start(command, quick) as started:
        try:
            return started.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            started.terminate()


if __name__ == "__main__":
    sys.exit(main())
