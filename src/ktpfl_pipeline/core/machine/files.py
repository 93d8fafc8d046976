"""Files that are replaced whole, and folders that one process has for itself."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import system_error, unwritable

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: no process waits for another
    flock = None  # type: ignore[assignment]


@contextlib.contextmanager
def alone(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock a folder for this process: another that asks for it waits until this one leaves it, or ends.

    Where the system or its disk offers no such locks, or the folder cannot be made or opened, no process waits.

    Args:
        folder: it is made where it is missing.
        waiting: called where another process has it, before that is waited for.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the reader or writer there gets the error
            folder.mkdir(parents=True, exist_ok=True)
            opened = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, opened)
            _lock(opened, waiting)
        yield


def _lock(opened: int, waiting: Callable[[], None]) -> None:
    if flock is None:
        return
    try:
        flock(opened, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        waiting()
        flock(opened, LOCK_EX)


@contextlib.contextmanager
def replacing(path: Path, what: str) -> Iterator[Path]:
    """Yield where to write what takes a file's place in one step, so that a reader sees all of it or what was there.

    Args:
        path: the file.
        what: it is, for the message.

    Raises:
        InputError: if the system does not let it be written, mostly because the disk is full. The file that was there
            is kept, and nothing is left of the new one.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except (OSError, RuntimeError) as error:  # torch's writer raises its own for the system's
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if (reason := system_error(error)) is None:
            raise
        raise unwritable(what, reason) from error
