"""Values in YAML: numbers that YAML 1.1 changes are refused, and all files are read in the same way.

Kedro reads the files under conf/ with OmegaConf's rules. `load` reads files of programs that have neither.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from ktpfl_pipeline.core.errors import InputError

CHANGED = re.compile(rb"(?<![\w.+-])[+-]?(0[\d_]*\d|[1-9][\d_]*(:[0-5]?\d)+(\.\d*)?)(?![\w.])")
"""A number that YAML 1.1 reads in another way than people do."""
POWER = re.compile(r"[-+]?(\d[\d_]*\.?|\d[\d_]*\.\d[\d_]*|\.\d[\d_]*)[eE][-+]?\d+\Z")
"""A number such as 1e-3, which YAML 1.1 reads as a text, and OmegaConf and people as a number."""
DATE = "tag:yaml.org,2002:timestamp"


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


def load(file: Path, content: bytes) -> Any:
    """Return the value of a YAML file.

    Raises:
        InputError: if YAML would change a number.
        YAMLError: if it is not valid YAML.
    """
    check_numbers(file, content)
    return yaml.load(content, _Loader)
