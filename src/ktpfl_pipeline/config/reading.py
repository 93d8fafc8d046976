"""The files under conf/, read through Kedro's loader, for the hooks and for the registry of pipelines.

Kedro registers pipelines without any settings at hand, but not before they are asked for. By then the hook that reads
the settings has called `remember`; where none was called, as in `kedro registry list`, `recall` reads them itself.
"""

import contextlib
import copy
import glob
import math
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
from ktpfl_pipeline.core.errors import InputError

MAX_BYTES, MAX_VALUES = 2**20, 20_000
"""The largest file of the configuration, and the most names and values in it after its aliases are expanded."""
FEW = 2**14
"""A file of at most this number of bytes without an anchor (``&name``) has fewer than `MAX_VALUES` values."""
_hidden: ContextVar[tuple[str, frozenset[str]]] = ContextVar("hidden", default=("", frozenset()))
_found: ContextVar[dict[str, Any] | None] = ContextVar("sections", default=None)


def sections(loader: Any) -> dict[str, Any]:
    """Return all experiments, sweeps and tunings by name, with ``--params`` in place and what they inherit."""
    base, overlay = loader.base_env, loader.env or loader.default_run_env
    configured = _sections_of(loader, base)
    if overlay != base:
        with contextlib.suppress(MissingConfigException):  # it need not have any
            configured = deep_merge(configured, _sections_of(loader, overlay))
    return parsing.merged(configured, loader.runtime_params or {})


def _sections_of(loader: Any, environment: str) -> dict[str, Any]:
    """Return what is in one environment. Kedro would not put a mapping in place of a list."""
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


def project_folder() -> Path:
    """Return the project that the current folder is in, as Kedro finds it, or else the current folder."""
    return Path(find_kedro_project(Path.cwd()) or Path.cwd())


def recall() -> dict[str, Any]:
    """Return the remembered sections, or else, with the errors of `sections`, those of the current folder's project."""
    if (found := _found.get()) is not None:
        return found
    from kedro.framework.project import settings

    place, env = str(project_folder() / settings.CONF_SOURCE), os.environ.get("KEDRO_ENV")
    return sections(settings.CONFIG_LOADER_CLASS(place, env=env, **settings.CONFIG_LOADER_ARGS))


def read(loader: Any, name: str) -> dict[str, Any]:
    """Return the merged content of the configuration's files of this name.

    An `InputError` says that they cannot be read, a MissingConfigException that there are none.
    """
    _check_size(loader, name)
    try:
        return dict(loader[name])
    except (AttributeError, TypeError) as error:  # Kedro looks for names before it looks at what it has
        raise InputError(
            f"A file {name}*.yml under conf/ has no names at its top level. Write settings as names with values, for "
            "example `rounds: 30`."
        ) from error
    except (YAMLError, OmegaConfBaseException, ValueError, OSError, RecursionError) as error:
        raise InputError(_unreadable(error, loader, name)) from error


def _check_size(loader: Any, name: str) -> None:
    """Check that no file of this name has more than `MAX_BYTES` bytes or `MAX_VALUES` values.

    Kedro's loader copies each alias in full: a few lines of nested aliases would become billions of values.
    """
    for file in _files(loader, name):
        with contextlib.suppress(OSError, YAMLError):  # the loader reports these
            content = file.read_bytes()
            if len(content) > MAX_BYTES:
                raise InputError(f"{file} has {len(content):,} bytes. At most {MAX_BYTES:,} are allowed: shorten it.")
            if (len(content) > FEW or b"&" in content) and _values(content) > MAX_VALUES:
                raise InputError(
                    f"{file} has more than {MAX_VALUES:,} values after its aliases are expanded. Remove aliases "
                    "(*name) within aliased values, or shorten the file."
                )


def _values(content: bytes) -> float:
    """Return how many names and values YAML has with every alias expanded; counting stops above `MAX_VALUES`."""
    sizes: dict[str, float] = {}
    opened: list[tuple[str | None, float]] = [(None, 0)]
    for event in yaml.parse(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, 1))
            sizes |= {event.anchor: math.inf} if event.anchor else {}  # a collection that contains itself
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = opened.pop()
            sizes |= {anchor: size} if anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(str(event.anchor), 1)
        else:
            size = float(isinstance(event, yaml.ScalarEvent))
        opened[-1] = (opened[-1][0], opened[-1][1] + size)
        if opened[-1][1] > MAX_VALUES:
            return math.inf
    return opened[0][1]


def _files(loader: Any, name: str) -> Iterator[Path]:
    """Yield the files of this name that Kedro reads from a folder of configuration."""
    for environment in sorted({loader.base_env, loader.env or loader.default_run_env}):
        folder = Path(loader.conf_source) / environment
        found = {each for of in loader.config_patterns[name] for each in glob.glob(of, root_dir=folder, recursive=True)}
        yield from (folder / each for each in sorted(found) if each.endswith((".yml", ".yaml", ".json")))


def _unreadable(error: Exception, loader: Any, name: str) -> str:
    """Return what is wrong with a file of the configuration: its name and, if known, the line."""
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
    """Return an error's first line, without the name that its library gives the text and without Python's advice."""
    return re.split(r'\n|  ?in "<|; use sys', str(error))[0].strip()
