"""A disk without room, for a moment: the system refuses to let any file become longer."""

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
