"""A command that ends when the process that started it does, whatever ends that: SIGKILL too.

Between the two stands a process that runs this file, and waits for the end of a pipe that its parent alone holds open.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

PATIENCE = 10.0
"""Seconds in which the command must end by itself, when it is told to."""


def start(command: Sequence[str], env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a command, without a terminal and without what it prints, and return the process that watches it.

    Args:
        command: and its arguments.
        env: its environment; None is this process's.
    """
    silent = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, __file__, *command],
        env=env,
        stdin=subprocess.PIPE,
        stdout=silent,
        stderr=silent,
        start_new_session=True,  # a Ctrl-C is its parent's, who may have something to say to it yet
    )


def watch(command: Sequence[str]) -> int:
    """Run a command until it ends, or this process's input or SIGTERM says so, and return its exit status."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def tell(end: Callable[[], object]) -> None:
        end()
        over.set()

    for end in (started.wait, lambda: os.read(0, 1)):  # nobody writes to the pipe: what is read is its end
        threading.Thread(target=tell, args=(end,), daemon=True).start()
    over.wait()
    started.terminate()
    try:
        return started.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        started.kill()
        return started.wait()


if __name__ == "__main__":
    sys.exit(watch(sys.argv[1:]))
