"""SIGTERM, which ends a run in order, as Ctrl-C does."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any


class TerminatedError(KeyboardInterrupt):
    """This process was asked to end: by a scheduler, a container or systemd."""


def heed() -> None:
    """Raise `TerminatedError` on SIGTERM from now on, only in this process; its forks end at once.

    Only a main thread may ask for it.
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
    """Keep what `heed` set, whatever handler of SIGTERM a library sets in here."""
    known = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(known) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, known)
