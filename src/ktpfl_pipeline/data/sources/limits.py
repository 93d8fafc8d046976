"""What is too much to be read, found by headers before anything is allocated (docs/reference/limits.md)."""

import contextlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError, used_up

MAX_PIXELS = 2**26  # Of one image, which is decoded whole: 8192 x 8192.
MAX_FILE = 4 * MAX_PIXELS  # Bytes of one image file: some decoders read it whole. No format needs more per pixel.
MAX_CLASSES = 10_000


def brief(error: Exception) -> str:
    """Return what an error says, cut where it goes on and on."""
    return textwrap.shorten(str(error), 200, placeholder=" ...")


@contextlib.contextmanager
def readable(path: Path, what: str = "cannot be read", fix: str = "replace or remove it") -> Iterator[None]:
    """Turn what reading a file or folder raises into an `InputError`: `what` is wrong with it, and how to `fix` it."""
    try:
        yield
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): see that the file may be read.") from error
    except Exception as error:  # wrong bytes make readers stumble in any way at all
        if used_up(error):
            raise  # the file may be whole
        raise InputError(f"{path} {what} ({brief(error)}): {fix}.") from error
