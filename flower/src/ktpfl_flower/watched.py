"""A command that ends when its parent process ends, for any reason, including SIGKILL.

A process in between runs this file and waits for the end of a pipe that only the parent holds open.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

PATIENCE = 10.0
"""Seconds that the command has to end after SIGTERM; then it is killed."""


def start(command: Sequence[str], env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a command, and return the process that watches it.

    Args:
        command: the program and its arguments.
        env: its environment; None: that of this process.
    """
    return subprocess.Popen(
        [sys.executable, __file__, *command],
        env=env,
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches only the parent, which then ends the command
    )


def watch(command: Sequence[str]) -> int:
    """Run a command until it ends, this process's input closes, or SIGTERM arrives; return its exit status."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def tell(end: Callable[[], object]) -> None:
        end()
        over.set()

    for end in (started.wait, lambda: os.read(0, 1)):  # nothing is written to the pipe, so a read returns at its end
        threading.Thread(target=tell, args=(end,), daemon=True).start()
    over.wait()
    started.terminate()
    try:
        return started.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        started.kill()
        return started.wait()


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    sys.exit(watch(sys.argv[1:]))
