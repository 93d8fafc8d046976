"""What stands under conf/, read through Kedro's loader, for the hooks and for the registry of pipelines.

Kedro registers pipelines without any settings at hand, but not before they are asked for. By then the hook that reads
the settings has called `remember`; where none was called, as in `kedro registry list`, `recall` reads them itself.
"""

import contextlib
import copy
import os
import re
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import yaml
from kedro.config import MissingConfigException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.inheritance import deep_merge
from ktpfl_pipeline.core.errors import InputError

_hidden: ContextVar[tuple[str, frozenset[str]]] = ContextVar("hidden", default=("", frozenset()))
_found: ContextVar[dict[str, Any] | None] = ContextVar("sections", default=None)


def sections(loader: Any) -> dict[str, Any]:
    """Return all experiments, sweeps and tunings by name, with ``--params`` in place and what they inherit.

    Raises:
        InputError: if they cannot be read; MissingConfigException: if there are none.
    """
    base, overlay = loader.base_env, loader.env or loader.default_run_env
    configured = _sections_of(loader, base)
    if overlay != base:
        with contextlib.suppress(MissingConfigException):  # it need not have any
            configured = deep_merge(configured, _sections_of(loader, overlay))
    return parsing.merged(configured, loader.runtime_params or {})


def _sections_of(loader: Any, environment: str) -> dict[str, Any]:
    """Return what stands in one environment: Kedro would not put a mapping in the place of a list."""
    alone = copy.copy(loader)
    alone.base_env = alone.env = environment
    alone.inherits, alone.data = False, {}
    alone.runtime_params = {}  # Kedro lets `--params` make sections that no file has
    return read(alone, "parameters")


def hidden(loader: Any) -> tuple[str, frozenset[str]]:
    """Return the environment in use, and the sections of conf/local that are not read because of it."""
    default, env = loader.default_run_env, loader.env or loader.default_run_env
    if env in (default, loader.base_env):
        return env, frozenset()
    try:
        return env, frozenset(_sections_of(loader, default)) - frozenset(_sections_of(loader, loader.base_env))
    except (InputError, MissingConfigException):
        return env, frozenset()


def unread(name: str) -> str:
    """Return why a section is not known although conf/local has it; empty where conf/local does not have it."""
    env, names = _hidden.get()
    if name not in names:
        return ""
    return (
        f"conf/local has {name!r}, and --env={env} is read instead of conf/local: leave --env out, or move the section "
        f"to conf/base or conf/{env}."
    )


def remember(found: dict[str, Any] | None, left_out: tuple[str, frozenset[str]] = ("", frozenset())) -> None:
    """Keep what `sections` returned for `recall` and what `hidden` did for `unread`, or forget both."""
    _found.set(found)
    _hidden.set(left_out)


def recall() -> dict[str, Any]:
    """Return the sections that were remembered, or else those of the project in the current folder.

    Raises:
        InputError: if they cannot be read; MissingConfigException: if there are none.
    """
    if (found := _found.get()) is not None:
        return found
    from kedro.framework.project import settings
    from kedro.utils import find_kedro_project

    project = find_kedro_project(Path.cwd()) or Path.cwd()
    place, env = str(project / settings.CONF_SOURCE), os.environ.get("KEDRO_ENV")
    return sections(settings.CONFIG_LOADER_CLASS(place, env=env, **settings.CONFIG_LOADER_ARGS))


def read(loader: Any, name: str) -> dict[str, Any]:
    """Return what the configuration's files of this name say together.

    Raises:
        InputError: if they cannot be read; MissingConfigException: if there are none.
    """
    try:
        return dict(loader[name])
    except (AttributeError, TypeError) as error:  # Kedro looks for names before it looks at what it has
        raise InputError(
            f"A file {name}*.yml under conf/ has no names at its top level. Write settings as names with values, for "
            "example `rounds: 30`."
        ) from error
    except (YAMLError, OmegaConfBaseException, ValueError, OSError, RecursionError) as error:
        raise InputError(_unreadable(error, loader, name)) from error


def _unreadable(error: Exception, loader: Any, name: str) -> str:
    """Return what is wrong with a file of the configuration: its name and, if known, the line."""
    source = Path(loader.conf_source)
    for environment in {loader.base_env, loader.env or loader.default_run_env}:
        for file in sorted((source / environment).glob(f"**/{name}*.y*ml")):
            try:
                yaml.safe_load(file.read_text(encoding="utf-8"))
            except yaml.MarkedYAMLError as wrong:
                line = f", line {wrong.problem_mark.line + 1}" if wrong.problem_mark else ""
                tag = re.search(r"constructor for the tag '([^']+)'", str(wrong.problem))
                what = (
                    f"the YAML tag {tag[1]} is not allowed" if tag else f"{wrong.problem or 'this is not valid YAML'}"
                )
                return f"{file}{line}: {what}. Correct the line."
            except (yaml.YAMLError, ValueError, RecursionError) as wrong:
                return f"{file} is not valid YAML: {' '.join(str(wrong).split())}. Correct the file."
            except OSError as wrong:
                return f"{file} cannot be read ({wrong.strerror}). Check its permissions."
    return f"The files {name}*.yml under conf/ cannot be read: {' '.join(str(error).split())}. Correct them."
