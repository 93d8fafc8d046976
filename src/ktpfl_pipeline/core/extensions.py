"""What a user writes outside this package, given by a dotted path: ``my_package.my_module:Name``."""

import importlib
import re
from typing import Any

from ktpfl_pipeline.core.errors import InputError

PATH = re.compile(r"\w+(\.\w+)*:\w+")


def is_path(name: str) -> bool:
    """Say whether a name has the form of a dotted path, ``package.module:name``."""
    return PATH.fullmatch(name) is not None


def load(path: str, what: str) -> Any:
    """Return what a dotted path names; messages call it a `what`: ``"method"``.

    Raises:
        InputError: if the module cannot be imported, or has no such name.
    """
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's own module raises
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"The {what} {path!r} cannot be imported ({reason}): correct the path, package.module:name, or put the "
            "package where Python finds it, such as the project's src folder."
        ) from None
    if not hasattr(found, name):
        raise InputError(f"The {what} {path!r} does not exist: there is no {name!r} in {module}; correct the name.")
    return getattr(found, name)
