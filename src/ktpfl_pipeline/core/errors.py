"""`InputError`, the exception for problems that a user can fix, its subclasses, and helpers for messages."""

import difflib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MAX_MESSAGE = 4000  # characters; a value may be a megabyte long
_USED_UP = re.compile(r"out of memory|can't allocate memory|not enough memory|Cannot allocate memory|ALLOC_FAILED")
"""Parts of the messages with which CUDA, cuBLAS, torch's CPU allocator and the system report exhausted memory."""
COVERED_METHODS = "column ε of docs/project/what_leaves.md"
"""The place in the documentation that lists the methods that private training allows."""
IMPORTED = {"scikit-learn": "sklearn"}
"""Packages that are imported by another name than the one by which they are installed."""
_PASSWORD = re.compile(r"(?<=://)([^\s:/@]*):[^\s'\"]*@")


class InputError(ValueError):
    """An input of the user, such as a setting or a file, cannot be used.

    The message has one or two sentences: the value, what is allowed, and how to fix it. The command line shows it
    without a traceback. Messages may quote names and values from files and settings. Therefore characters that cannot
    be printed are escaped as by `repr`, the middle of a very long message is left out, and passwords in addresses are
    masked.
    """

    def __init__(self, message: str) -> None:
        """Store the message as one line that a terminal can show."""
        line = printable(masked(message))
        half = MAX_MESSAGE // 2
        super().__init__(line if len(line) <= MAX_MESSAGE else f"{line[:half]} ... {line[-half:]}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the attributes, so that a subclass may have a constructor with other arguments."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


def printable(text: str) -> str:
    """Return a text as one line that a terminal can show; non-printable characters are escaped as by `repr`."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def written(value: Any) -> str:
    """Return a setting as text: ``null``, ``true`` and ``false`` as in YAML, all other values as in Python."""
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def masked(text: str) -> str:
    """Return a text with every password in an address replaced by ``***``, as in ``postgresql://user:***@host``."""
    return _PASSWORD.sub(r"\1:***@", text)


class LostError(InputError):
    """A model was lost with the worker that stored it. The engine then returns to the last checkpoint."""


class NotCoveredError(InputError):
    """Training is private, and a method uses private samples in a way that ε does not cover."""

    def __init__(self, use: str) -> None:
        """Name the `use` that is not covered, as in ``"trains client 3 twice in round 2"``."""
        super().__init__(
            f"training.privacy is set, and this method {use}, which its ε would not cover: set it to null, or choose "
            f"methods that only train locally ({COVERED_METHODS})."
        )


class ClientsMissing(InputError):
    """Real clients sent no valid reply; the round continues without them."""

    def __init__(self, found: Mapping[int, str], names: Mapping[int, str] | None = None) -> None:
        super().__init__(" ".join(f"{each[:1].upper()}{each[1:]}." for each in by_reason(found, names)))
        self.found = dict(found)  #: the reason by client, such as ``"gave no answer to train within 120 s"``


def by_reason(why: Mapping[int, str], names: Mapping[int, str] | None = None) -> list[str]:
    """Return one text per reason, with the clients it applies to: ``["clients 1 and 2 gave no answer to train"]``."""
    clients: dict[str, list[str]] = {}
    for n, reason in why.items():
        clients.setdefault(reason.rstrip("."), []).append(labeled(n, names))
    return [
        f"clients {', '.join(others)} and {last} {reason}" if others else f"client {last} {reason}"
        for reason, (*others, last) in clients.items()
    ]


class DivergedError(InputError):
    """The training of a client, or of a model of the server, became NaN or infinite."""

    def __init__(self, found: Mapping[Any, str], t: int | None = None, names: Mapping[int, str] | None = None) -> None:
        """Name all clients and models in `found`, what of the first one is not finite in round t, and the remedy."""
        (first, what), *rest = found.items()
        others = f" So did {', '.join(labeled(n, names) for n, _ in rest)}." if rest else ""
        super().__init__(
            f"{named(first, names)} diverged{'' if t is None else f' in round {t}'} ({what}); "
            f"lower training.learning_rate or distillation.learning_rate.{others}"
        )
        #: what is not finite, such as ``"its train loss is nan"``, by the client's id or the name of the server's model
        self.found: dict[int | str, str] = dict(found)


def named(n: int | str, names: Mapping[int, str] | None = None) -> str:
    """Return what messages call client n, or the server's model of the architecture n."""
    return f"Client {labeled(n, names)}" if isinstance(n, int) else f"The server's {n}"


def labeled(n: int | str, names: Mapping[int, str] | None = None) -> str:
    """Return a client's number, with its name if `names` has one, as in ``1 (anna)``; any other name as it is."""
    name = (names or {}).get(n) if isinstance(n, int) else None
    return f"{n} ({name})" if name else str(n)


def system_error(error: BaseException) -> OSError | None:
    """Return the operating system's own error behind `error`, such as a full disk; None if there is none.

    Libraries replace it by their own errors, which do not contain its message.
    """
    found: BaseException | None = error
    while found is not None and not (isinstance(found, OSError) and found.errno is not None):
        found = found.__cause__ or found.__context__
    return found


def used_up(error: BaseException) -> bool:
    """Return whether an error means that this machine, or a device, has no memory left."""
    says = isinstance(error, RuntimeError | OSError) and _USED_UP.search(str(error)) is not None
    return says or isinstance(error, MemoryError)


def unwritable(what: str, error: OSError) -> InputError:
    """Return the error for `what`, a described file that the operating system did not let us write.

    If the file or folder is below a broken link, such as a disk that is not mounted, the message names the link.
    """
    named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else Path()
    for place in (named, *named.parents):
        if place.is_symlink() and not place.exists():
            return InputError(
                f"{what} could not be written: {place} is a link to {os.readlink(place)}, which does not exist. See "
                "that the place is there (a disk may not be mounted), or delete the link, and give the same command "
                "again. What was finished before is kept."
            )
        if isinstance(error, FileExistsError | NotADirectoryError) and place.is_file():
            return InputError(
                f"{what} could not be written: {place} is a file, and must be a folder. Move the file away, and give "
                "the same command again. What was finished before is kept."
            )
    return InputError(
        f"{what} could not be written ({error.strerror}): free some space on the disk, or see that the place may be "
        "written to, and give the same command again. What was finished before is kept."
    )


def check_installed(what: str, *packages: str, otherwise: str = "") -> None:
    """Check that the packages that `what` needs are installed; `otherwise` is another way out.

    Raises InputError with the command that installs them into this process's environment, which has no pip if uv made
    it.
    """
    missing = " ".join(package for package in packages if find_spec(IMPORTED.get(package, package)) is None)
    if not missing:
        return
    python = shlex.quote(sys.executable)
    command = f"{python} -m pip install" if find_spec("pip") else f"uv pip install --python {python}"
    raise InputError(
        f"{what} needs {missing}, not installed: run {command} {missing}{otherwise and f', or {otherwise}'}."
    )


RENAMED = {"flipped": "reversed"}
"""The present names of settings and of their values, by former name."""


def renamed(given: object) -> str:
    """Return the present name of a setting or value in a sentence; empty if it was never renamed."""
    return f"{given!r} is called {RENAMED[given]!r} now" if isinstance(given, str) and given in RENAMED else ""


def nearest(given: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint for the unknown name `given`: a question with the nearest known name, or else `otherwise`."""
    if now := renamed(given):
        return f"{now}."
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def meant(given: str, known: Iterable[str]) -> str:
    """Return the hint of `nearest` in parentheses after a space; empty if no known name is near."""
    hint = nearest(given, known, "")
    return hint and f" ({hint})"


def plural(number: int, word: str) -> str:
    """Return a number with its noun: ``1 round``, ``3,000 rounds``, ``2 classes``."""
    ending = "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{'' if number == 1 else ending}"


def listed(names: Sequence[object], most: int = 10) -> str:
    """Return the first `most` names and the number of the others, such as ``a, b and 3 more``."""
    return ", ".join(map(str, names[:most])) + f" and {len(names) - most:,} more" * (len(names) > most)


def unknown(what: str, given: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name of a `what`, such as ``"model"``; it lists and suggests known names."""
    names = list(known)
    choice = f"choose from {', '.join(names)}" if names else "there are none"
    return InputError(f"{what} {given!r} is unknown{meant(given, names)}: {choice}.")
