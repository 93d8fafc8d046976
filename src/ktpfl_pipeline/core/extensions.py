"""What a user writes outside this package, given by a dotted path: ``my_package.my_module:Name``."""

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


def load(path: str, what: str) -> Any:
    """Return what a dotted path names; messages call it a `what`: ``"method"``.

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
    """Return the files, lines and functions of the user's own package that led to an error, the innermost last."""
    package = re.split(r"[.:]", path)[0]
    stack = traceback.walk_tb(error.__traceback__)
    own = [pair for pair in stack if str(pair[0].f_globals.get("__name__")).split(".")[0] == package]
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in own]


@contextmanager
def own_errors(path: str, what: str) -> Iterator[None]:
    """Say of an error in the block which of the user's own lines raised it, where one of them is among its causes.

    The lines are those of the package of `path`, a dotted path (other names change nothing), and messages call it a
    `what`, such as ``"method"``. Raises InputError instead of the error.
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
    """Say what the user's own code raised, and in which of its lines: ``"KeyError: 'x' (/home/me/nets.py, line 7)"``.

    Lines of other packages than that of the dotted `path` are passed over.
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
    """Return what a value that the user's own code returned is called in messages: its type, or None."""
    from torch import Tensor

    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {str(value.dtype).removeprefix('torch.')}"
        return f"a tensor of {tuple(value.shape)}{kind}"
    own = type(value)
    module = "" if own.__module__ == "builtins" else f"{own.__module__}."
    return "None" if value is None else f"a {module}{own.__qualname__}"
