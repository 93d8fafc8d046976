"""Join a federation: ``python -m ktpfl_pipeline.flower.join my_client.yml --superlink 192.0.2.1:8000``.

Flower's own SuperNode starts a process for each message, which would load torch and the samples each time, and runs
the code that the server sends. Here a SuperNode carries messages alone, and this one process answers them: with the
code that is installed at the client, and no other. What it uses of Flower's inside is that of release 1.41.
"""

import argparse
import logging
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import app

logger = logging.getLogger(__name__)
PULSE = 0.1
"""Seconds between two looks for messages."""


def main(arguments: list[str] | None = None) -> int:
    """Run a client until its SuperNode ends; options that are not known here are the SuperNode's."""
    parser = argparse.ArgumentParser("python -m ktpfl_pipeline.flower.join", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the client's own file")
    parser.epilog = "Every other option goes to flower-supernode: --superlink, --insecure, --root-certificates, ..."
    asked, others = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        app.member(str(asked.file.resolve()))
    except InputError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    port = _free_port()
    command = [str(Path(sys.executable).parent / "flower-supernode"), *others, "--isolation", "process"]
    command += ["--port", str(port), "--node-config", f'client="{asked.file.resolve()}"']
    node = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # or the SuperNode would go on alone
    try:
        _answer_until_end(node, f"127.0.0.1:{port}")
    except KeyboardInterrupt:
        pass
    finally:
        node.terminate()
    return node.wait()


def _answer_until_end(node: "subprocess.Popen[bytes]", address: str) -> None:
    """Answer what the SuperNode at an address of this machine has, until it ends."""
    client = _runtime(address)
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while not _listens(address) and node.poll() is None:
        time.sleep(PULSE)
    while node.poll() is None:
        task = client.AcquireTask(request)
        if task.HasField("task") and task.token:
            _answer(_runtime(address, task.token))
        else:
            time.sleep(PULSE)


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
