"""Join a federation: ``python -m ktpfl_pipeline.flower.join my_client.yml --superlink 192.0.2.1:8000``.

Flower's own SuperNode starts a process for each message, which would load torch and the samples each time, runs the
code that the server sends, and looks for a message every three seconds. Here a SuperNode carries messages alone, as
often as is asked, and a thread beside it answers them: with the code that is installed at the client, and no other. It
is one process, so that nothing of a killed client goes on. What it uses of Flower's inside is that of release 1.41.
"""

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.exit.exit_handler import trigger_exit_handlers
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import app

logger = logging.getLogger(__name__)
PULSE = 0.5
"""Seconds between two looks for messages, where nothing else is asked."""


def main(arguments: list[str] | None = None) -> int:
    """Run a client until it is stopped; options that are not known here are the SuperNode's.

    Returns 1 where the client ends by itself: a supervisor may start it again.
    """
    parser = argparse.ArgumentParser("python -m ktpfl_pipeline.flower.join", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the client's own file")
    parser.add_argument("--pulse", type=float, default=PULSE, help="seconds between two looks for messages")
    parser.epilog = "Every other option goes to flower-supernode: --superlink, --insecure, --root-certificates, ..."
    asked, others = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("flwr").propagate = False  # it has a handler of its own
    file = asked.file.resolve()
    try:
        if not 0 < asked.pulse <= 60:
            raise InputError(f"--pulse is {asked.pulse:g}: set it to a number of seconds above 0, and 60 at most.")
        app.member(str(file)).check()
    except InputError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    port = _free_port()
    threading.Thread(target=_answer_all, args=(f"127.0.0.1:{port}", asked.pulse), daemon=True).start()
    _look_every(asked.pulse)
    _tell_unknown()
    sys.argv = ["flower-supernode", *others, "--isolation", "process", "--port", str(port)]
    sys.argv += ["--node-config", f'client="{file}"']
    flower_supernode()  # which returns by an error alone, having told it
    trigger_exit_handlers(run_before_force_exit=False)
    return 1


def _look_every(seconds: float) -> None:
    """Let the SuperNode look for messages that often; how long it sleeps between two looks is a constant of it."""
    loop = import_module("flwr.supernode.start_client_internal")
    loop.time = SimpleNamespace(sleep=lambda asked: time.sleep(min(asked, seconds)))  # type: ignore[attr-defined]


class _Fleet(FleetHttpClient):  # type: ignore[misc,unused-ignore]
    """The SuperNode's calls of a SuperLink, which tell in a sentence that it does not know this client any more."""

    def PullMessages(self, request: PullMessagesRequest) -> PullMessagesResponse:
        anew = "it was started anew: start the same command again."
        with _known_or(InputError(f"The SuperLink does not know this client any more, for {anew}")):
            return super().PullMessages(request)

    def SendNodeHeartbeat(self, request: SendNodeHeartbeatRequest) -> SendNodeHeartbeatResponse:
        with _known_or(SystemExit()):  # of its thread, silently: the next look for messages tells
            return super().SendNodeHeartbeat(request)


@contextlib.contextmanager
def _known_or(otherwise: BaseException) -> Iterator[None]:
    """Raise `otherwise` where a SuperLink turns a client away that it does not know."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.UNAUTHORIZED:
            raise
        raise otherwise from error


def _tell_unknown() -> None:
    """Let the SuperNode end with a sentence where it would with a traceback, and as if it had been asked to."""
    import_module("flwr.supernode.fleet_http_connection").FleetHttpClient = _Fleet  # type: ignore[attr-defined,unused-ignore]


def _answer_all(address: str, pulse: float) -> None:
    """Answer what the SuperNode at an address of this process has, as long as that lives."""
    try:
        while not _listens(address):
            time.sleep(pulse)
        client = _runtime(address)
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        while True:
            task = client.AcquireTask(request)
            if task.HasField("task") and task.token:
                _answer(_runtime(address, task.token))
            else:
                time.sleep(pulse)
    except Exception:
        logger.exception("This client answers no more.")
        os.kill(os.getpid(), signal.SIGTERM)  # or the SuperNode would wait for answers for ever


def _answer(client: RuntimeHttpClient) -> None:
    """Answer one message; its token is the client's."""
    heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heart.start()
    message, context, _, _ = pull_task_input(client)  # the app that came with it is not looked at
    status, reason = SubStatus.COMPLETED, ""
    try:
        reply = app.client(message, context)
    except Exception as error:
        logger.exception("This message could not be answered.")
        status, reason = SubStatus.FAILED, f"{type(error).__name__} at the client, whose log has it"
        reply = Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason), reply_to=message)
    push_message(client, reply, context)
    push_task_output(client=client, context=context, sub_status=status, details=reason)
    heart.stop()
    client.close()


def _runtime(address: str, token: str | None = None) -> RuntimeHttpClient:
    own = [] if token is None else [RuntimeTokenHttpInterceptor(token)]
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # it does not leave this machine
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), *own],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as tried:
        return tried.connect_ex((host, int(port))) == 0


if __name__ == "__main__":
    sys.exit(main())
