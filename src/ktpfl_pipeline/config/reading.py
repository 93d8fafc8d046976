"""Reading of the files under conf/ with Kedro's configuration loader, for the hooks and the pipeline registry.

Kedro calls the pipeline registry without the settings. In a run, the hook that reads the settings has called `remember`
before. In commands without hooks, such as `kedro registry list`, `recall` reads the settings itself.
"""

import contextlib
import copy
import glob
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import yaml
from kedro.config import MissingConfigException
from kedro.utils import find_kedro_project
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.inheritance import deep_merge
from ktpfl_pipeline.config.values import checked
from ktpfl_pipeline.core.errors import InputError

_found: ContextVar[dict[str, Any] | None] = ContextVar("sections", default=None)
_loader: ContextVar[Any] = ContextVar("loader", default=None)


def sections(loader: Any) -> dict[str, Any]:
    """Return all sections by name, updated with ``--params``, and with the settings that they inherit.

    Raises:
        InputError: if a file cannot be read, a section cannot inherit, or ``--params`` names an unknown section.
        MissingConfigException: if the base environment has no file of parameters.
    """
    base, overlay = loader.base_env, loader.env or loader.default_run_env
    configured = _sections_of(loader, base)
    if overlay != base:
        with contextlib.suppress(MissingConfigException):  # an environment may have no parameters
            configured = deep_merge(configured, _sections_of(loader, overlay))
    return parsing.merged(configured, loader.runtime_params or {})


def _sections_of(loader: Any, environment: str) -> dict[str, Any]:
    """Return the sections of one environment. They are read separately: Kedro cannot replace a list by a mapping."""
    alone = copy.copy(loader)
    alone.base_env = alone.env = environment
    alone.inherits, alone.data = False, {}
    alone.runtime_params = {}  # Kedro would let `--params` add sections that are in no file
    return read(alone, "parameters")


def unread(name: str) -> str:
    """Return the reason why a section of conf/local was not read, for an error message; empty if there is none."""
    if (loader := _loader.get()) is None:
        return ""
    default, base = loader.default_run_env, loader.base_env
    if (env := loader.env or default) in (default, base):
        return ""
    try:
        names = _sections_of(loader, default).keys() - _sections_of(loader, base).keys()
    except (InputError, MissingConfigException):
        return ""
    if name not in names:
        return ""
    return (
        f"conf/local has {name!r}, and --env={env} is read instead of conf/local: leave --env out, or move the section "
        f"to conf/base or conf/{env}."
    )


def remember(found: dict[str, Any] | None, loader: Any = None) -> None:
    """Store the result of `sections` for `recall`, and its loader for `unread`; None clears them."""
    _found.set(found)
    _loader.set(loader)


def project_folder() -> Path:
    """Return the folder of the Kedro project that contains the current folder, or the current folder if none does."""
    return Path(find_kedro_project(Path.cwd()) or Path.cwd())


def recall() -> dict[str, Any]:
    """Return the stored sections, or else read those of the current project. Raises the same errors as `sections`."""
    if (found := _found.get()) is not None:
        return found
    from kedro.framework.project import settings

    place, env = str(project_folder() / settings.CONF_SOURCE), os.environ.get("KEDRO_ENV")
    return sections(settings.CONFIG_LOADER_CLASS(place, env=env, **settings.CONFIG_LOADER_ARGS))


def read(loader: Any, name: str) -> dict[str, Any]:
    """Return the merged content of the files for the key `name`, such as ``parameters``.

    Raises:
        InputError: if a file cannot be read.
        MissingConfigException: if there is no such file.
    """
    for file in _files(loader, name):
        with contextlib.suppress(OSError, YAMLError):  # the loader reports these
            checked(file)
    try:
        return dict(loader[name])
    except (AttributeError, TypeError) as error:  # Kedro assumes that the content is a mapping
        raise InputError(
            f"A file {name}*.yml under conf/ has no names at its top level. Write settings as names with values, for "
            "example `rounds: 30`."
        ) from error
    except (YAMLError, OmegaConfBaseException, ValueError, OSError, RecursionError) as error:
        raise InputError(_unreadable(error, loader, name)) from error


def _files(loader: Any, name: str) -> Iterator[Path]:
    """Yield the files that Kedro reads for the key `name`, in the base environment and in the environment in use."""
    for environment in sorted({loader.base_env, loader.env or loader.default_run_env}):
        folder = Path(loader.conf_source) / environment
        found = {each for of in loader.config_patterns[name] for each in glob.glob(of, root_dir=folder, recursive=True)}
        yield from (folder / each for each in sorted(found) if each.endswith((".yml", ".yaml", ".json")))


def _unreadable(error: Exception, loader: Any, name: str) -> str:
    """Return the error message for the first file that cannot be read, with its line number if known."""
    for file in _files(loader, name):
        try:
            OmegaConf.load(file)
        except yaml.MarkedYAMLError as wrong:
            line = f", line {wrong.problem_mark.line + 1}" if wrong.problem_mark else ""
            tag = re.search(r"constructor for the tag '([^']+)'", str(wrong.problem))
            what = f"the YAML tag {tag[1]} is not allowed" if tag else f"{wrong.problem or 'this is not valid YAML'}"
            return f"{file}{line}: {what}. Correct the line."
        except (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as wrong:
            return f"{file} is not valid YAML: {_reason(wrong)}. Correct the file."
        except OSError as wrong:
            if wrong.strerror:
                return (
                    f"{file} cannot be read ({wrong.strerror}). Check its permissions and the disk, and give the same "
                    "command again."
                )
            return f"{file} contains a single value. Write settings as names with values, for example `rounds: 30`."
    return f"The files {name}*.yml under conf/ cannot be read: {_reason(error)}. Correct them."


def _reason(error: Exception) -> str:
    """Return the first line of an error, without the library's name for the YAML text and without Python's advice."""
    return re.split(r'\n|  ?in "<|; use sys', str(error))[0].strip()
