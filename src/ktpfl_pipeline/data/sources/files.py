"""The files of sources: paths in arguments, limits (docs/reference/limits.md), and folders that are read.

A folder of samples may come from strangers: a link in it must not lead to other files of the user, and a pipe in it
must not be opened.
"""

import contextlib
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError, used_up

MAX_PIXELS = 2**26  # The largest number of pixels of an image, 8192 x 8192.
MAX_FILE = 4 * MAX_PIXELS  # The largest image file in bytes. No format needs more bytes per pixel.
MAX_CLASSES = 10_000
IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def check_no_argument(argument: str) -> None:
    """Raise InputError if `argument` is not empty, for sources without an argument."""
    if argument:
        raise InputError(f"this source takes no argument, but was given {argument!r}: leave out ':{argument}'.")


def file_in(name: str, argument: str, folder: Path, example: str) -> Path:
    """Return the path of a file in a source's argument, as `path_in` does. Raises InputError if it is not a file."""
    path = path_in(name, argument, folder, example)
    if not os.path.isfile(path):  # unlike Path.is_file, False for too long or inaccessible paths
        raise no_such("file", path, folder)
    return path


def folder_in(name: str, argument: str, folder: Path) -> Path:
    """Return the path of a folder in a source's argument, as `path_in` does. Raises InputError if there is none."""
    path = path_in(name, argument, folder, "yourfolder")
    if not os.path.isdir(path):
        raise no_such("folder", path, folder)
    return path


def path_in(name: str, argument: str, folder: Path, example: str) -> Path:
    """Return the path in the argument of the source `name`. A relative path starts at `folder`.

    Raises InputError if the argument is empty or not a path, or if a relative path leaves `folder`. The message shows
    the `example`.
    """
    if not argument:
        raise InputError(f"source {name!r} needs a path: write {f'{name}:{example}'!r}.")
    if "\0" in argument:
        raise InputError(
            f"the path {argument!r} of source {name!r} has a zero byte, which file names cannot have: correct the path."
        )
    path = folder / os.path.expanduser(argument)
    if Path(os.path.normpath(argument)).parts[:1] == ("..",):
        raise InputError(
            f"the path {argument!r} leads out of {folder}: write the absolute path {os.path.abspath(path)} to use it."
        )
    return path


def no_such(kind: str, path: Path, folder: Path) -> InputError:
    """Return the error for a path that is not a `kind`, ``"file"`` or ``"folder"``."""
    if os.path.isdir(path):
        return InputError(
            f"{path} is a folder and not a file: folders are given as 'folder:<folder>' or 'clients:<folder>'."
        )
    if os.path.isfile(path):
        return InputError(f"{path} is a file and not a folder: name the folder that contains the files.")
    if os.path.lexists(path):
        return InputError(
            f"{path} is neither file nor folder (for example a pipe, a device or a broken link): correct the path."
        )
    return InputError(f"there is no {kind} {path}: correct the path (relative paths start at {folder}).")


def subfolders(place: Path, root: Path) -> list[Path]:
    """Return the folders in `place`, sorted, without names that begin with a dot. Links must stay within `root`."""
    with readable(place):
        found = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for entry in found:
        _check_inside(entry, root)
    return found


def files_in(place: Path, root: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """Return the files in `place` with these suffixes, sorted. Raises InputError for the reasons of `check_file`."""
    with readable(place):
        files = (file for file in place.iterdir() if file.suffix.lower() in suffixes)
        shown = sorted(file for file in files if not file.name.startswith("."))
    for file in shown:
        check_file(file, root)
    return shown


def files_below(place: Path, root: Path) -> list[Path]:
    """Return the image files in `place` and in all folders below it, sorted within each folder, `place` first."""
    below = []
    for entry in subfolders(place, root):
        if Path(os.path.realpath(place)).is_relative_to(os.path.realpath(entry)):
            raise InputError(f"{entry} is a symbolic link to a folder above it: remove it.")
        below += files_below(entry, root)
    return [*files_in(place, root), *below]


def check_file(file: Path, root: Path) -> None:
    """Raise InputError if `file` is not a regular file, or is a symbolic link out of `root`."""
    _check_inside(file, root)
    if not file.is_file():  # reading a pipe would never end
        raise InputError(f"{file} is not a file that can be read (a folder, a pipe, a broken link): remove it.")


def _check_inside(path: Path, root: Path) -> None:
    target = Path(os.path.realpath(path))  # unlike Path.resolve, it accepts a link to itself
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(root)):
        raise InputError(f"{path} is a symbolic link out of its folder, to {target}: put a copy in its place.")


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
