"""An emulated full disk: for a moment, the system lets no file grow."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """Let no file of this process be longer than `room` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
