"""Handling of SIGTERM, which ends a run in an orderly way, as Ctrl-C does."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any


class TerminatedError(KeyboardInterrupt):
    """This process received SIGTERM, for example from a scheduler, a container runtime or systemd."""


def heed() -> None:
    """Make SIGTERM raise `TerminatedError` in this process from now on. Processes forked from it end at once.

    Called in a thread other than the main thread, this function does nothing.
    """
    owner = os.getpid()

    def end(number: int, frame: Any) -> None:
        if os.getpid() == owner:
            raise TerminatedError
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


@contextlib.contextmanager
def heeding() -> Iterator[None]:
    """Restore the handler of SIGTERM after the block, in which a library may set its own."""
    known = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(known) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, known)
