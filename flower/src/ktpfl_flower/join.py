"""Join a federation: ``python -m ktpfl_flower.join my_client.yml --insecure --superlink 192.0.2.1:8000``.

This process has the samples and replies for the client, with the code that is installed here. It starts Flower's
SuperNode, which passes messages on and runs the app that the server sent; that app reaches this process only by a
socket.
"""

import argparse
import logging
import os
import socket
import sys
import tempfile
import threading
from multiprocessing.connection import Listener
from pathlib import Path

from ktpfl_flower.client.member import Member, answered
from ktpfl_flower.watched import ended_by_signals, patient, watched
from ktpfl_pipeline.core.errors import InputError

logger = logging.getLogger(__name__)
ENDED = (
    "The SuperNode ended; its output states the cause. If the SuperLink was restarted, it no longer knows this client: "
    "run the same command again."
)
KEYED = (
    " If the key of this client is not registered, or the SuperLink was restarted since, which forgets all keys, the "
    "server must register it first: flwr supernode register KEY.pub SUPERLINK."
)


def main(arguments: list[str] | None = None) -> int:
    """Run a client until it is stopped; options that are not known here are passed to the SuperNode.

    Returns 1 if the client ends by itself, so that a supervisor can start it again.
    """
    command, given = "python -m ktpfl_flower.join", sys.argv[1:] if arguments is None else arguments
    usage = f"{command} file [--socket SOCKET] [options of flower-supernode]"
    parser = argparse.ArgumentParser(command, usage, __doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the client's file, before all options")
    parser.add_argument(
        "--socket", type=Path, help="reply at this socket and start no SuperNode; start one under another account"
    )
    parser.epilog = "All other options go to flower-supernode: --superlink, --insecure, --root-certificates, ..."
    if given and given[0].startswith("-") and given[0] not in ("-h", "--help"):  # a value of it could pass for the file
        parser.error(f"the first argument is {given[0]}, but it must be the client's file. Put it before all options.")
    asked, others = parser.parse_known_args(given)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        place = asked.socket or Path(folder, "client")
        try:
            member = Member(asked.file.resolve())
            member.check()
            listener = listening(place)
        except InputError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        if asked.socket:
            os.chmod(place, 0o660)  # the SuperNode's account must be in the socket's group
            logger.info("Client %d replies at %s.", member.own.client, place)
            serve(member, listener)
        logger.info(
            "Client %d takes part until it is ended by Ctrl-C or kill %d. Without a SuperLink it tries to connect "
            "again and again; --max-wait-time SECONDS limits this.",
            *(member.own.client, os.getpid()),
        )
        threading.Thread(target=serve, args=(member, listener), daemon=True).start()
        _supernode(place, others)
        listener.close()
    keyed = any(option.startswith("--auth-supernode-private-key") for option in others)
    print(ENDED + (KEYED if keyed else ""), file=sys.stderr)  # noqa: T201
    return 1


def listening(place: Path) -> Listener:
    """Return a listener at a socket, which replaces one that a killed process left there.

    Raises:
        InputError: if the socket cannot be opened, or another process replies at it.
    """
    try:
        if place.is_socket() and not _replies(place):
            place.unlink()
        return Listener(str(place), "AF_UNIX")
    except OSError as error:
        raise InputError(
            f"{place} cannot be this client's socket ({error.strerror or error}). Choose a path of at most 100 "
            "characters that no other program uses, in a folder that may be written to: with --socket, or with TMPDIR "
            "where --socket is not used."
        ) from error


def _replies(place: Path) -> bool:
    """Return whether a process listens at a socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(place))
        except ConnectionRefusedError:
            return False
    return True


def serve(member: Member, listener: Listener) -> None:
    """Answer one message after another over a socket, until the listener is closed."""
    while True:
        try:
            connection = listener.accept()
        except ConnectionError:
            continue
        except OSError:  # the listener is closed
            return
        with connection:
            try:
                connection.send_bytes(answered(member, connection.recv_bytes()))
            except (EOFError, OSError) as error:  # the sender disconnected
                logger.warning("A message was not delivered (%s).", error)


def _supernode(place: Path, options: list[str]) -> None:
    """Run a SuperNode until it ends, or this process does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folder = str(Path(sys.executable).parent)
    command = patient("flower-supernode", *options, "--port", port, "--node-config", f'client="{place}"')
    path = os.pathsep.join([folder, os.environ.get("PATH", "")])  # it starts Flower's other programs
    with watched(command, env={"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", **os.environ, "PATH": path}) as started:
        started.wait()


if __name__ == "__main__":
    ended_by_signals()
    sys.exit(main())
