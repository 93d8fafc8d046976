"""Users' own methods, models and data sources, which are given by dotted paths: ``my_package.my_module:Name``."""

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ktpfl_pipeline.core.errors import InputError

OURS = __name__.partition(".")[0]
"""The name of this package."""
PATH = re.compile(r"\w+(\.\w+)*:\w+")
STANDARD_LIBRARY = tuple(os.path.realpath(sysconfig.get_path(of)) + os.sep for of in ("stdlib", "platstdlib"))
"""The folders of Python's own modules."""
INSTALLED = {"site-packages", "dist-packages"}
"""Names of the folders of installed packages. There may be several: the user's, the system's, those of a .pth file."""
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/")
"""Folders whose files do not belong to a user's code, in addition to those of libraries."""
_READ: dict[str, set[tuple[str, str]]] = {}
"""What the code of each package has read while it was watched: ("file", path) or ("environment", name)."""
_WATCHED: list[str] = []
"""The packages that are watched now; reads are recorded for the last one."""


def is_path(name: str) -> bool:
    """Return whether a name has the form of a dotted path, ``package.module:name``."""
    return PATH.fullmatch(name) is not None


def not_a_path(given: str, meant: str) -> InputError:
    return InputError(f"{given} is not a dotted path, package.module:name; write {meant}.")


def load(path: str, what: str) -> Any:
    """Return the object that a dotted path names. `what` is its name in messages, such as ``"method"``.

    Raises InputError if there is no such module, it cannot be imported, or it has no such name.
    """
    module, _, name = path.partition(":")
    try:
        with watched(path):
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


def package_of(path: str) -> str:
    return re.split(r"[.:]", path)[0]


@cache
def is_library(module: str) -> bool:
    """Return whether a loaded module is Python's own or an installed package's, and not a file of the user's."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" and (file is None or is_in_library(file))


def is_in_library(file: str | os.PathLike[str]) -> bool:
    place = os.path.realpath(file)
    return place.startswith(STANDARD_LIBRARY) or not INSTALLED.isdisjoint(place.split(os.sep))


@contextmanager
def watched(path: str) -> Iterator[None]:
    """Record the files and the environment variables that the package of a dotted `path` reads in the block."""
    _listen()
    package = package_of(path)
    get = type(os.environ).__getitem__

    def seen(environment: Any, name: str) -> str:
        caller = sys._getframe(1)
        while caller.f_back is not None and caller.f_globals.get("__name__") in ("os", "collections.abc"):
            caller = caller.f_back
        if _is_of(caller, package):
            _READ.setdefault(package, set()).add(("environment", name))
        return get(environment, name)

    _WATCHED.append(package)
    try:
        with patch.object(type(os.environ), "__getitem__", seen):
            yield
    finally:
        _WATCHED.pop()


@cache
def _listen() -> None:
    """Call `_hear` at each of Python's audit events from now on; Python cannot undo this."""
    sys.addaudithook(_hear)


def _hear(event: str, given: tuple[Any, ...]) -> None:
    """Record a file that the watched package opens for reading."""
    if not _WATCHED or event != "open" or not isinstance(given[0], str | bytes):
        return
    place, mode, flags = os.path.realpath(os.fsdecode(given[0])), given[1] or "", given[2] or 0
    if set("wax+") & set(mode) or flags & (os.O_WRONLY | os.O_RDWR) or place.endswith((".py", ".pyc", ".so")):
        return
    frame: Any = sys._getframe(1)
    while frame is not None and not _is_of(frame, _WATCHED[-1]):
        frame = frame.f_back
    if frame is not None and not place.startswith(SYSTEM) and not is_in_library(place) and os.path.isfile(place):
        _READ.setdefault(_WATCHED[-1], set()).add(("file", place))


def _is_of(frame: Any, package: str) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == package


def read_by(path: str) -> dict[str, str]:
    """Return hashes of what the package of a dotted `path` has read, by name: files, and environment variables.

    The hashes are of the present contents. Only reads that were `watched` are known.
    """
    found = {}
    for kind, name in sorted(_READ.get(package_of(path), ())):
        if kind == "environment":
            found[name] = hashlib.sha256(os.environ.get(name, "").encode()).hexdigest()[:16]
            continue
        inside = Path(name).relative_to(Path.cwd()) if Path(name).is_relative_to(Path.cwd()) else Path(name).name
        found[str(inside)] = _content(name, os.stat(name).st_mtime_ns) if os.path.isfile(name) else "missing"
    return found


@cache
def _content(file: str, changed: int) -> str:
    """Return the hash of a file's content. `changed` is the time of its last change, part of the key of the cache."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def own_frames(error: BaseException, path: str) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of an error that is in the package of `path`, the innermost last."""
    package = package_of(path)
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


def raised(error: BaseException, path: str) -> str:
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


def add_imports(found: dict[str, Path], name: str, package: str, inside: bool = False) -> None:
    """Add to `found`, by name, the file of the module `name`, and the files of the modules that it imports.

    These are the modules of `package`, of this package, and the users' own. In users' own files, the imports inside of
    functions count too; in this package's files only if `inside` is set.
    """
    file, parent = _place_of(name)
    ours, own = name.startswith(f"{OURS}."), name.partition(".")[0] == package != OURS
    if file is None or file in found.values() or not (ours or own or not is_in_library(file)) or name == OURS:
        return
    found[name] = file
    for each in _imported(file, file.stat().st_mtime_ns, parent, not ours or inside):
        add_imports(found, each, package, inside)


@cache
def _imported(file: Path, changed: int, parent: str, inside: bool) -> list[str]:
    """Return the names that a source file of the package `parent` imports, `inside` of functions too or not.

    `changed` is the time of the file's last change in nanoseconds. It is part of the key of the cache.
    """
    tree, imported = ast.parse(file.read_bytes()), list[str]()
    for statement in ast.walk(tree) if inside else tree.body:
        if isinstance(statement, ast.Import):
            imported += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            origin = "." * statement.level + (statement.module or "")
            origin = importlib.util.resolve_name(origin, parent)
            imported += [origin, *(f"{origin}.{alias.name}" for alias in statement.names)]
        elif isinstance(statement, ast.Call) and ast.unparse(statement.func).endswith(("import_module", "__import__")):
            imported += [str(each.value) for each in statement.args[:1] if isinstance(each, ast.Constant)]
    return imported


def _place_of(name: str) -> tuple[Path | None, str]:
    """Return the source file of a module, loaded or not, and the name of its package; None if there is no file.

    Libraries that are not loaded are not imported for it.
    """
    file, parent = None, None
    first, above = name.partition(".")[0], name.rpartition(".")[0]
    if name in sys.modules:
        file, parent = (getattr(sys.modules[name], of, None) for of in ("__file__", "__package__"))
    elif not above or above in sys.modules or not ((known := _place_of(first)[0]) and is_in_library(known)):
        with suppress(Exception):  # the user's package may raise any error, and the last part may name a function
            spec = importlib.util.find_spec(name)
            file, parent = (spec.origin, spec.parent) if spec else (None, None)
    return (Path(file) if file and file.endswith(".py") else None), parent or ""
