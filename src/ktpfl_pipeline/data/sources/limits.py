"""Limits of input files, which are checked before memory is allocated (docs/reference/limits.md)."""

import contextlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError, used_up

MAX_PIXELS = 2**26  # The largest number of pixels of an image, 8192 x 8192.
MAX_FILE = 4 * MAX_PIXELS  # The largest image file in bytes. No format needs more bytes per pixel.
MAX_CLASSES = 10_000


def brief(error: Exception) -> str:
    """Return the message of an error, shortened to 200 characters."""
    return textwrap.shorten(str(error), 200, placeholder=" ...")


@contextlib.contextmanager
def readable(path: Path, what: str = "cannot be read", fix: str = "replace or remove it") -> Iterator[None]:
    """Raise errors from reading `path` as InputError. The message says `what` is wrong with it and how to `fix` it."""
    try:
        yield
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): see that the file may be read.") from error
    except Exception as error:  # invalid bytes can cause any error in readers
        if used_up(error):
            raise  # out of memory: the file may be valid
        raise InputError(f"{path} {what} ({brief(error)}): {fix}.") from error
