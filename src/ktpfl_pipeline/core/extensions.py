"""Users' own methods, models and data sources, which are given by dotted paths: ``my_package.my_module:Name``."""

import importlib
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ktpfl_pipeline.core.errors import InputError

PATH = re.compile(r"\w+(\.\w+)*:\w+")


def is_path(name: str) -> bool:
    """Return whether a name has the form of a dotted path, ``package.module:name``."""
    return PATH.fullmatch(name) is not None


def not_a_path(given: str, meant: str) -> InputError:
    """Return the error for what a message says was `given`, where a dotted path was `meant`."""
    return InputError(f"{given} is not a dotted path, package.module:name; write {meant}.")


def load(path: str, what: str) -> Any:
    """Return the object that a dotted path names. `what` is its name in messages, such as ``"method"``.

    Raises InputError if there is no such module, it cannot be imported, or it has no such name.
    """
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's own module raises
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise InputError(
                f"The {what} {path!r} cannot be imported ({type(error).__name__}: {error}): correct the path, "
                "package.module:name, or put the package where Python finds it, such as the project's src folder."
            ) from None
        raise InputError(
            f"The {what} {path!r} cannot be imported: its module raised {raised(error, path)}: correct it there."
        ) from error
    if not hasattr(found, name):
        raise InputError(f"The {what} {path!r} does not exist: there is no {name!r} in {module}; correct the name.")
    return getattr(found, name)


def own_frames(error: Exception, path: str) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of an error that is in the package of `path`, the innermost last."""
    package = re.split(r"[.:]", path)[0]
    stack = traceback.walk_tb(error.__traceback__)
    own = [pair for pair in stack if str(pair[0].f_globals.get("__name__")).split(".")[0] == package]
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in own]


@contextmanager
def own_errors(path: str, what: str) -> Iterator[None]:
    """Replace an error that a user's own code raises in the block by an InputError that names the file and the line.

    The user's own code is the package of the dotted `path`. An error whose traceback does not contain it is raised
    unchanged, and so is any error if `path` is not a dotted path. `what` is the name of the user's object in messages,
    such as ``"method"``.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not is_path(path) or not own_frames(error, path):
            raise
        raise InputError(
            f"The {what} {path!r} raised {raised(error, path)}: correct it there. `ktpfl check {path}` tries it on toy "
            "data, and shows the lines that led to it."
        ) from error


def raised(error: Exception, path: str) -> str:
    """Return an error as text with the line that raised it: ``"KeyError: 'x' (/home/me/nets.py, line 7)"``.

    The line is the innermost one in the package of the dotted `path`.
    """
    places = [(file, line) for file, line, _ in own_frames(error, path)]
    said: object = error
    if isinstance(error, SyntaxError) and os.path.isfile(error.filename or ""):
        places.append((str(error.filename), error.lineno or 1))
        said = error.msg
    where = f" ({places[-1][0]}, line {places[-1][1]})" if places else ""
    first = str(said).strip().partition("\n")[0].rstrip(".")  # torch's messages have more lines
    return f"{type(error).__name__}{first and ': '}{first}{where}"


def called(value: Any) -> str:
    """Return a description, for messages, of a value that a user's code returned: its type, or None."""
    from torch import Tensor

    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {str(value.dtype).removeprefix('torch.')}"
        return f"a tensor of {tuple(value.shape)}{kind}"
    own = type(value)
    module = "" if own.__module__ == "builtins" else f"{own.__module__}."
    return "None" if value is None else f"a {module}{own.__qualname__}"
