"""What is too much to be read, found by headers before anything is allocated (docs/reference/limits.md)."""

import contextlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.resources import free_memory

MAX_BYTES = 16 * 2**30  # of all inputs of a source: a zip of a few megabytes may claim petabytes
MAX_PIXELS = 2**26  # of one image, which is decoded whole: 8192 x 8192
MAX_FILE = 4 * MAX_PIXELS  # bytes of one image file: some decoders read it whole, and no format needs more a pixel
MAX_HEADER = 10_000  # bytes of an array's header: numpy writes a hundred, and reads the 4 GiB that one may claim
MAX_READ = 2**24  # bytes of a .npz read at once: its directory is, and one of gigabytes may be claimed
MAX_CLASSES = 10_000


def brief(error: Exception) -> str:
    """Return what an error says, cut where it goes on and on."""
    return textwrap.shorten(str(error), 200, placeholder=" ...")


@contextlib.contextmanager
def readable(path: Path, what: str = "cannot be read", fix: str = "replace or remove it") -> Iterator[None]:
    """Turn whatever reading a file or folder raises into an `InputError`.

    Args:
        path: the file or folder.
        what: is wrong with one whose bytes are.
        fix: what to do about it.
    """
    try:
        yield
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): see that the file may be read.") from error
    except Exception as error:  # wrong bytes make readers stumble in any way at all
        raise InputError(f"{path} {what} ({brief(error)}): {fix}.") from error


def gib(size: int) -> str:
    """Return a number of bytes in GiB or MiB."""
    return f"{size // 2**30:,} GiB" if size >= 2**30 else f"{size // 2**20:,} MiB"


def room() -> int:
    """Return how many bytes of inputs may be read: they are copied once, so half of the memory that is free."""
    return min(MAX_BYTES, free_memory() // 2) if sys.platform == "linux" else MAX_BYTES


def check_claim(path: Path, claimed: int, fix: str) -> None:
    """Check that a file does not claim more than may be read.

    Args:
        path: the file.
        claimed: bytes of inputs, labels and what is made of them.
        fix: what to do where they are too many, for the message.

    Raises:
        InputError: if they are.
    """
    if claimed > (free := room()):
        half = f"half of the free memory ({gib(free)})"
        limit = f"the {gib(MAX_BYTES)} allowed" if claimed > MAX_BYTES else half
        raise InputError(f"{path} claims {gib(claimed)} of data, more than {limit}: {fix}.")
