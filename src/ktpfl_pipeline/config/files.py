"""Configuration files that would fill memory or run code, refused before Kedro reads them.

Kedro's loader knows no tags that run code, and copies what a YAML alias repeats: nine lines may stand for a billion.
"""

from pathlib import Path
from typing import Any

import yaml

from ktpfl_pipeline.core.errors import InputError

MAX_VALUES = 100_000
"""With what aliases repeat counted as often as they do; conf/base has some thousand."""
MAX_DEPTH = 50
"""Of values within values; conf/base has 6."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check(folder: Path) -> None:
    """Check that no file of an environment stands for more values than anyone writes.

    Raises:
        InputError: naming the file.
    """
    for file in sorted(file for file in folder.rglob("*") if file.suffix in (".yml", ".yaml") and file.is_file()):
        try:
            values = _values(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{file} cannot be read ({error.strerror}): see that the file may be read.") from error
        except (ValueError, yaml.YAMLError):
            continue  # whoever reads it says what is wrong, with the line
        if values > MAX_VALUES:
            raise InputError(
                f"{file} stands for more than {MAX_VALUES:,} values, or more than {MAX_DEPTH} within each other: take "
                "out aliases (*name) that repeat one another, and brackets."
            )


def _values(text: str) -> int:
    """Return how many values a text stands for, each alias counted as what it repeats."""
    too_many = MAX_VALUES + 1
    counts: list[int] = [0]
    names: list[str | None] = []
    anchors: dict[str, int] = {}
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            values, name = counts.pop(), names.pop()
            counts[-1] += values
            anchors[name or ""] = values
            continue
        if isinstance(event, yaml.AliasEvent):
            counts[-1] += anchors.get(event.anchor or "", 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            names.append(event.anchor)
            anchors[event.anchor or ""] = too_many  # until it ends: what repeats itself has no end
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
            anchors[event.anchor or ""] = 1
        if counts[-1] > MAX_VALUES or len(counts) > MAX_DEPTH:
            return too_many
    return sum(counts)
