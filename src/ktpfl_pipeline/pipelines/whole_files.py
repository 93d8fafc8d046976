"""Files that are always whole.

A file is written beside the old one and takes its place in one step, with the checksum of its content in a file beside
it, so that whoever reads it sees all of it or none, and can tell whether it was changed.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import system_error, unwritable

PARTIAL = ".partial"
"""Suffix of a file or folder that is not, or no longer, whole; whoever gathers reports passes over it."""


def sums(folder: Path, files: Iterable[Path]) -> str:
    """Return the checksums of files in a folder as ``sha256sum`` writes them, sorted by name."""
    lines = []
    for file in sorted(files):
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        lines.append(_line(digest, file.relative_to(folder).as_posix()))
    return "".join(lines)


def put(partial: Path, file: Path) -> None:
    """Let the file `partial` take the place of `file`, and keep its checksum beside it."""
    partial.replace(file)
    _sum_of(file).write_text(sums(file.parent, [file]), encoding="utf-8")


def put_folder(partial: Path, place: Path) -> None:
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


def is_whole(file: Path) -> bool:
    """Return whether a file is as `put` left it."""
    try:
        return _sum_of(file).read_text(encoding="utf-8") == sums(file.parent, [file])
    except (OSError, UnicodeDecodeError):  # one of the two is not there
        return False


def content_of(file: Path) -> bytes:
    """Return what is in a file that `put` left.

    Raises:
        ValueError: if a checksum is beside it which is not that of the content.
    """
    content = file.read_bytes()
    expected = _line(hashlib.sha256(content).hexdigest(), file.name)  # of the bytes that are returned
    if _sum_of(file).exists() and _sum_of(file).read_bytes() != expected.encode():
        raise ValueError("its checksum is not the one beside it: it was changed, or writing it was interrupted")
    return content


@contextlib.contextmanager
def all_or_nothing(place: Path, partial: Path) -> Iterator[None]:
    """Leave nothing half-written, and say in one sentence what the system did not let be written.

    Args:
        place: what is being written.
        partial: where it is until it is whole.

    Raises:
        InputError: in the place of what the operating system raised.
    """
    try:
        yield
    except Exception as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
        if (reason := system_error(error)) is None:
            raise
        raise unwritable(str(place), reason) from error


def _line(digest: str, name: str) -> str:
    return f"{digest}  {name}\n"


def _sum_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")
