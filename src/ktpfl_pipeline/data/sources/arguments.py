"""The argument of a source, which follows the colon: empty, or a path."""

import os
from pathlib import Path

from ktpfl_pipeline.core.errors import InputError


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
