"""Atomic replacement of files, checksums of files, and locks of folders.

A new file or folder is written under another name and then renamed, so a reader never sees an incomplete one. A rename
replaces a file in one step. An existing folder is first renamed out of the way, so for a moment there is no folder. A
file may have its checksum in another file next to it, with which a reader detects changes.
"""

import contextlib
import errno
import glob
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ktpfl_pipeline.core.errors import InputError, system_error, unwritable

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: no process waits for another
    flock = None  # type: ignore[assignment]

PACKAGE = Path(__file__).parents[2]
"""The folder of this package's source."""
HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
"""A mark of this machine in the names of unfinished files. Machines may share a disk, and process ids may repeat."""
PARTIAL = ".partial"
"""The suffix of a file or folder that is incomplete or is being removed."""
RETIRED = ".old" + PARTIAL
"""The suffix of a folder that is being replaced."""
CHANGED = "its checksum is not the one next to it: it was changed, or writing it was interrupted"
CHUNK = 2**20
"""The number of bytes that are read at once."""


@contextlib.contextmanager
def alone(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock a folder for this process inside the block. Another process that locks it waits until the block ends.

    A missing folder is made. `waiting` is called before this process waits for another one. If the system or the disk
    has no such locks, or the folder cannot be made or opened, the block runs without a lock.
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


def is_locked(folder: Path) -> bool:
    """Return whether a folder is locked by `alone`."""
    if flock is None or not folder.exists():
        return False
    opened = os.open(folder, os.O_RDONLY)
    try:
        flock(opened, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a disk without locks
        return False
    finally:
        os.close(opened)
    return False


@contextlib.contextmanager
def replacing(place: Path, what: str = "", *, summed: bool = False) -> Iterator[Path]:
    """Yield a path for a new file or folder, which replaces `place` after the block.

    If the block raises an error, `place` does not change and the new file or folder is deleted. Raises InputError if
    the operating system does not let it be written, mostly because the disk is full.

    Args:
        place: the path that is replaced.
        what: the name of the file or folder in messages; by default its path.
        summed: whether a file gets its checksum in a file next to it.
    """
    partial = place.with_name(f"{place.name}.{HOST}-{os.getpid()}{PARTIAL}")  # another process may write it too
    sum_ = partial.with_name(f"{partial.name}.sha256")
    try:
        _remove_leftovers(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if partial.is_dir():
            _put_folder(partial, place)
        else:
            if summed:
                with partial.open("rb") as opened:
                    sum_.write_text(_line(sha256(opened, partial.stat().st_size), place.name), encoding="utf-8")
            partial.replace(place)
            if summed:
                sum_.replace(_sum_of(place))
    except Exception as error:
        _remove(partial)
        _remove(sum_)
        reason = None if isinstance(error, InputError) else system_error(error)
        if reason is None:
            raise
        raise unwritable(what or str(place), reason) from error


def sha256(file: BinaryIO, size: int) -> str:
    """Return the SHA-256 sum of the first `size` bytes of an open file, in hexadecimal digits."""
    found = hashlib.sha256()
    file.seek(0)
    while size > 0 and (chunk := file.read(min(CHUNK, size))):
        found.update(chunk)
        size -= len(chunk)
    return found.hexdigest()


def sums(folder: Path, files: Iterable[Path]) -> str:
    """Return the checksums of files in a folder as ``sha256sum`` writes them, sorted by name."""
    lines = []
    for file in sorted(files):
        with file.open("rb") as opened:
            lines.append(_line(sha256(opened, file.stat().st_size), file.relative_to(folder).as_posix()))
    return "".join(lines)


def is_whole(file: Path) -> bool:
    """Return whether a file has a checksum next to it that matches its content."""
    try:
        return _sum_of(file).read_text(encoding="utf-8") == sums(file.parent, [file])
    except (OSError, UnicodeDecodeError):  # the file or its checksum is missing
        return False


def content_of(file: Path) -> bytes:
    """Return the content of a file. Raises ValueError if a checksum is next to the file and does not match."""
    content = file.read_bytes()
    expected = _line(hashlib.sha256(content).hexdigest(), file.name)  # from the same bytes that are returned
    if _sum_of(file).exists() and _sum_of(file).read_bytes() != expected.encode():
        raise ValueError(CHANGED)
    return content


def check(file: Path) -> None:
    """Check a file as `content_of` does, without keeping its content in memory. Raises ValueError as that does."""
    if _sum_of(file).exists() and not is_whole(file):
        raise ValueError(CHANGED)


def _remove_leftovers(place: Path) -> None:
    """Remove unfinished new versions of a file or folder by this process, or by processes that have ended.

    The folder that one of these was replacing is restored, if no new one is in its place.
    """
    for partial in place.parent.glob(f"{glob.escape(place.name)}.*{PARTIAL}*"):  # * also finds a database's journal
        writer = re.match(rf"{HOST}-(\d+)", partial.name.removeprefix(f"{place.name}."))
        if writer and (int(writer[1]) == os.getpid() or not runs(int(writer[1]))):
            if partial.name.endswith(RETIRED):  # that process ended before the new folder was in its place
                _restore(partial, place)
            _remove(partial)


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 is not sent
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def _remove(partial: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)


def _put_folder(partial: Path, place: Path) -> None:
    """Rename the folder `partial` to `place`. An existing folder is removed afterwards, or restored if that fails.

    Another process may put its folder in the same place between the two renames: then that one is replaced too.
    """
    retired = partial.with_name(partial.name.removesuffix(PARTIAL) + RETIRED)
    while True:
        with contextlib.suppress(FileNotFoundError):  # there is none, or another process has just renamed it
            place.rename(retired)
        try:
            partial.replace(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                _restore(retired, place)
                raise
        else:
            return
        finally:
            shutil.rmtree(retired, ignore_errors=True)


def _restore(retired: Path, place: Path) -> None:
    """Rename a folder that was replaced to `place` again, unless there is a new one."""
    with contextlib.suppress(OSError):
        retired.rename(place)


def _line(digest: str, name: str) -> str:
    return f"{digest}  {name}\n"


def _sum_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")
