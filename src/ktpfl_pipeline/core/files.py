"""Files that are replaced whole."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import system_error, unwritable


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
