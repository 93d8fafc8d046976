"""Values in YAML: what every file of settings must satisfy, and a reader for programs without Kedro and OmegaConf."""

import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from ktpfl_pipeline.core.errors import InputError

MAX_BYTES, MAX_VALUES, MAX_LEVELS = 2**20, 20_000, 100
"""The most bytes of a file of settings, keys and values with all aliases, and levels of nested values."""
FEW = 2**14
"""A file of at most this number of bytes without an anchor (``&name``) has fewer than `MAX_VALUES` values."""
CHANGED = re.compile(rb"(?<![\w.+-])[+-]?(0[\d_]*\d|[1-9][\d_]*(:[0-5]?\d)+(\.\d*)?)(?![\w.])")
"""A number that YAML 1.1 reads in another way than people do."""
POWER = re.compile(r"[-+]?(\d[\d_]*\.?|\d[\d_]*\.\d[\d_]*|\.\d[\d_]*)[eE][-+]?\d+\Z")
"""A number such as 1e-3, which YAML 1.1 reads as a text, and OmegaConf and people as a number."""
DATE = "tag:yaml.org,2002:timestamp"


def checked(file: Path) -> bytes:
    """Return the content of a YAML file.

    Readers copy each alias in full: a few lines of nested aliases would become billions of values.

    Raises:
        InputError: if it has too many bytes, values or levels, or a number that YAML changes.
        OSError, YAMLError: if it cannot be read.
    """
    if (size := file.stat().st_size) > MAX_BYTES:
        raise InputError(f"{file} has {size:,} bytes. At most {MAX_BYTES:,} are allowed: shorten it.")
    content = file.read_bytes()
    if len(content) > FEW or b"&" in content:
        _check_values(file, content)
    check_numbers(file, content)
    return content


def check_numbers(file: Path, content: bytes) -> None:
    """Raise InputError for a number that YAML 1.1 reads as another one: 010 is 8, 08 is a text, and 1:30 is 90."""
    if not CHANGED.search(content):
        return
    for token in yaml.scan(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if not isinstance(token, yaml.ScalarToken) or not token.plain or not CHANGED.fullmatch(token.value.encode()):
            continue
        given, digits = token.value, token.value.replace("_", "")
        if ":" in given:
            now, write = "a number of minutes or seconds", "the number itself"
        elif not set(digits) - set("+-01234567"):
            now, write = str(int(digits, 8)), str(int(digits))
        else:
            now, write = "a text", str(int(digits))
        if now != write:
            raise InputError(
                f"{file}, line {token.start_mark.line + 1}: YAML reads {given} as {now}. Write {write}, or put quotes "
                "around it if it is a text."
            )


def _check_values(file: Path, content: bytes) -> None:
    """Raise InputError for too many keys and values after all aliases are expanded, or for values nested too deeply."""
    sizes: dict[str, float] = {}
    opened: list[tuple[str | None, float]] = [(None, 0)]
    for event in yaml.parse(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if len(opened) > MAX_LEVELS:  # readers would take minutes
            raise InputError(f"{file} is nested too deeply to be read. Write one setting per line.")
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
            raise InputError(
                f"{file} has more than {MAX_VALUES:,} values after its aliases are expanded. Remove aliases "
                "(*name) within aliased values, or shorten the file."
            )


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with OmegaConf's rules: 1e-3 is a number, a date is a text, and no name occurs twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; raise ConstructorError if a name occurs twice."""
        names = [name.value for name, _ in node.value]
        for place, (name, _) in enumerate(node.value):
            if name.value in names[:place]:
                raise yaml.constructor.ConstructorError(None, None, f"found {name.value} twice", name.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != DATE]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", POWER, list("-+0123456789."))


def load(file: Path) -> Any:
    """Return the value of a YAML file, read as the files under conf/; see `checked`.

    Raises:
        InputError: if it is a pipe, a device or a folder, or `checked` refuses it.
        OSError, YAMLError: if it cannot be read.
    """
    if file.exists() and not file.is_file():  # reading a pipe or a device might never end
        raise InputError(f"{file} is not a file. Correct the path.")
    return yaml.load(checked(file), _Loader)
