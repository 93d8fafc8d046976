"""This process as Flower's ServerApp: it submits a run to a SuperLink, and takes the server's part in it itself.

Flower would start another process for that, where Kedro and MLflow of this one are not. Where nobody listens, a
SuperLink is started, which ends with this process, killed or not. What this uses of Flower's inside is that of release
1.41.
"""

import atexit
import hashlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from subprocess import Popen

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import RetryInvoker, make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import watched
from ktpfl_pipeline.flower.app import GridLink

PATIENCE = 300.0
"""Seconds in which a SuperLink must be there or back, and give this process the run that it submitted."""
PULSE = 0.2
"""Seconds between two looks for either."""
APP = {
    "pyproject.toml": b"""
[project]
name = "ktpfl-app"
version = "0.1.0"
description = "A method of ktpfl_pipeline on real clients"
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "ktpfl"
[tool.flwr.app.components]
serverapp = "ktpfl_pipeline.flower.app:server"
clientapp = "ktpfl_pipeline.flower.app:client"
"""
}
"""What is submitted: names of code that both ends have installed."""


class Patient:
    """Calls of a SuperLink, tried again until it was away for longer than PATIENCE; Flower itself waits for ever."""

    def __init__(self, superlink: str) -> None:
        """Call nothing yet."""
        self._superlink = superlink
        self._invoker: RetryInvoker = make_simple_http_retry_invoker()

    def invoke(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        """Return what a call returns.

        Raises:
            InputError: if the SuperLink stays away, or does not know the run any more.
        """

        def known() -> httpx.Response:
            try:
                return call()
            except httpx.HTTPStatusError as error:
                if error.response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                    raise self._lost("was started anew, or has ended the run") from error
                raise

        self._invoker.max_time = PATIENCE
        try:
            answer: httpx.Response = self._invoker.invoke(known)
        except httpx.HTTPError as error:
            raise self._lost(f"gave no answer that can be used within {PATIENCE:g} seconds ({error})") from error
        return answer

    def _lost(self, what: str) -> InputError:
        again = "see that it is there, and give the same command again, which goes on at the checkpoint"
        return InputError(f"The SuperLink at {self._superlink} {what}: {again}.")


@cache
def connected(superlink: str, certificate: str | None) -> GridLink:
    """Return messages to the clients of a SuperLink, for as long as this process lives.

    Args:
        superlink: its address, ``127.0.0.1:8000``; where nobody listens there, one is started.
        certificate: the file with the authority's certificate that its own is checked by; None goes without TLS.

    Raises:
        InputError: if none is there and none can be started, or it does not let this process run the server's part.
    """
    for chatty in ("flwr", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    stack = ExitStack()
    atexit.register(stack.close)
    if not _listens(superlink):
        link = stack.enter_context(_started(superlink, certificate))  # which is waited for
        stack.callback(link.terminate)
    try:
        return GridLink(_entered(superlink, certificate, stack), superlink)
    except (httpx.HTTPError, OSError) as error:
        raise InputError(
            f"The SuperLink at {superlink} does not do what it is asked for ({error}): see that it is one of Flower "
            "1.41, was started with --isolation process, and speaks TLS where compute.flower.certificate is given."
        ) from error


def _entered(superlink: str, certificate: str | None, stack: ExitStack) -> HttpGrid:
    """Submit a run, take its server's part, and return the grid to its clients."""
    authority = None if certificate is None else _authority(certificate)
    way = {"server_address": superlink, "insecure": authority is None, "root_certificates": authority}
    said = [RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")]
    content, _ = build_fab_from_files(APP)
    control = ControlHttpClient.from_server_address(**way, interceptors=said)
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    run = control.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id
    control.close()
    runtime = RuntimeHttpClient.from_server_address(**way, interceptors=said)
    stack.callback(runtime.close)
    token = _token(runtime, run, superlink)
    grid = HttpGrid(superlink, authority is None, authority, token=token)
    grid._retry_invoker = Patient(superlink)
    given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = given.task_id, run, given.context.node_id
    grid.set_run(run_from_proto(given.run))
    alive = RuntimeHttpClient.from_server_address(**way, interceptors=[*said, RuntimeTokenHttpInterceptor(token=token)])
    stack.callback(alive.close)
    heart = HeartbeatSender(lambda: _beat(alive))
    heart.start()
    stack.callback(grid.close)
    stack.callback(heart.stop)
    stack.callback(_farewell, alive)
    return grid


def _authority(certificate: str) -> bytes:
    try:
        return Path(certificate).read_bytes()
    except OSError as error:
        raise InputError(
            f"compute.flower.certificate is {certificate!r}, which cannot be read ({error.strerror}): correct the "
            "path, or leave it out where the SuperLink speaks no TLS."
        ) from error


def _beat(alive: RuntimeHttpClient) -> bool:
    """Say that this process lives, and return whether that was heard; what is refused, the next message says."""
    try:
        alive.SendTaskHeartbeat(SendTaskHeartbeatRequest())
    except httpx.TransportError:
        return False
    except httpx.HTTPStatusError:
        pass
    return True


def _farewell(alive: RuntimeHttpClient) -> None:
    """Say that the run has ended, to a SuperLink that may be gone."""
    with suppress(httpx.HTTPError):
        alive.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))


def _token(runtime: RuntimeHttpClient, run: int, superlink: str) -> str:
    """Return the token of a run's server's part."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        task = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        if task.HasField("task") and task.token and task.task.run_id == run:
            return str(task.token)
        time.sleep(PULSE)
    raise InputError(
        f"The SuperLink at {superlink} gives the server's part of its runs to processes of its own: start it with "
        "--isolation process, or stop it, and one is started."
    )


def _started(superlink: str, certificate: str | None) -> Popen[bytes]:
    """Start a SuperLink on this machine, and wait until it listens."""
    host, _, port = superlink.rpartition(":")
    if certificate is not None or not port.isdecimal():
        raise InputError(
            f"Nobody listens at {superlink}, which compute.flower.superlink names: start the SuperLink there, or "
            "correct the address. With a certificate none is started, for it needs keys."
        )
    command = [str(Path(sys.executable).parent / "flower-superlink"), "--insecure", "--host", host, "--port", port]
    command += ["--isolation", "process", "--disable-runtime-dependency-installation"]
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0"}
    link = watched.start(command, quiet)
    end = time.monotonic() + PATIENCE
    while not _listens(superlink):
        if link.poll() is not None or time.monotonic() > end:
            link.terminate()
            raise InputError(f"No SuperLink could be started at {superlink}: try `{' '.join(command)}`.")
        time.sleep(PULSE)
    return link


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.socket() as tried:
            return port.isdecimal() and tried.connect_ex((host or "127.0.0.1", int(port))) == 0
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(
            f"compute.flower.superlink is {address!r}, which is no machine and port ({error}): correct it, as in "
            "127.0.0.1:8000."
        ) from error
