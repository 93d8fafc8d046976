"""Files that are always whole.

A file is written next to the old one and takes its place in one step, with the checksum of its content in another
file. So a reader sees all of it or none, and can see whether it was changed.
"""

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError, system_error, unwritable

PARTIAL = ".partial"
"""Suffix of a file or folder that is not, or no longer, whole; whoever gathers reports passes over it."""
CHANGED = "its checksum is not the one next to it: it was changed, or writing it was interrupted"


def sums(folder: Path, files: Iterable[Path]) -> str:
    """Return the checksums of files in a folder as ``sha256sum`` writes them, sorted by name."""
    lines = []
    for file in sorted(files):
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        lines.append(_line(digest, file.relative_to(folder).as_posix()))
    return "".join(lines)


def is_whole(file: Path) -> bool:
    """Return whether a file is as `put` left it."""
    try:
        return _sum_of(file).read_text(encoding="utf-8") == sums(file.parent, [file])
    except (OSError, UnicodeDecodeError):  # one of the two is not there
        return False


def content_of(file: Path) -> bytes:
    """Return what is in a file that `put` left.

    Raises:
        ValueError: if a checksum is next to it which is not that of the content.
    """
    content = file.read_bytes()
    expected = _line(hashlib.sha256(content).hexdigest(), file.name)  # of the bytes that are returned
    if _sum_of(file).exists() and _sum_of(file).read_bytes() != expected.encode():
        raise ValueError(CHANGED)
    return content


def check(file: Path) -> None:
    """Check a file that is too large to be read at once as `content_of` does; errors as of that."""
    if _sum_of(file).exists() and not is_whole(file):
        raise ValueError(CHANGED)


@contextlib.contextmanager
def replacing(place: Path) -> Iterator[Path]:
    """Yield where to write the file or folder that takes the place of another, whole or not at all.

    Raises:
        InputError: instead of what the operating system raised, unless another message was given.
    """
    partial = place.with_name(f"{place.name}.{os.getpid()}{PARTIAL}")  # another process may write the same file
    try:
        _remove_leftovers(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if partial.is_dir():
            _put_folder(partial, place)
        else:
            partial.replace(place)
            _sum_of(place).write_text(sums(place.parent, [place]), encoding="utf-8")
    except Exception as error:
        _remove(partial)
        reason = None if isinstance(error, InputError) else system_error(error)
        if reason is None:
            raise
        raise unwritable(str(place), reason) from error


def _remove_leftovers(place: Path) -> None:
    """Remove the unfinished new versions of a file or folder that this process, or a killed one, left."""
    for partial in place.parent.glob(f"{glob.escape(place.name)}.*{PARTIAL}"):
        writer = partial.name.removeprefix(f"{place.name}.").removesuffix(PARTIAL)
        if writer.isdecimal() and (int(writer) == os.getpid() or not _runs(int(writer))):
            _remove(partial)


def _runs(process: int) -> bool:
    """Return whether there is a process of this number on this machine."""
    try:
        os.kill(process, 0)  # which sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True


def _remove(partial: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)


def _put_folder(partial: Path, place: Path) -> None:
    """Move the folder `partial` to `place`; what was there goes when that is done, and comes back when it fails."""
    retired = place.with_name(place.name + ".old" + PARTIAL)
    shutil.rmtree(retired, ignore_errors=True)
    if place.exists():
        place.rename(retired)
    try:
        partial.replace(place)
    except OSError:
        if retired.exists():
            retired.rename(place)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _line(digest: str, name: str) -> str:
    return f"{digest}  {name}\n"


def _sum_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")
