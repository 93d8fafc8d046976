"""Inheritance between sections of conf/: a section with ``like: hetero_digits`` has only the settings that differ."""

import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import COMPARE, PAPER, SWEEP, TUNE, Paper, Sweep, Tune
from ktpfl_pipeline.core.errors import InputError, nearest, written
from ktpfl_pipeline.core.validation import rules, spelt_out

LIKE = "like"
"""The key of a section that names the section from which missing settings are inherited."""
WHOLE = ("architectures", "executor")
"""Settings whose mapping is a single value, which is replaced and not merged, such as ``{lenet: 9, mlp: 3}``."""
RESERVED = (COMPARE, "overview")
"""Prefixes that are reserved for names of pipelines; no section may have a name that starts with one of them."""
MODELS: dict[str, type] = {"": Experiment, SWEEP: Sweep, TUNE: Tune, PAPER: Paper}
"""The schema of a section, by the kind that `kind_of` returns."""
WHAT = {"": "an experiment", SWEEP: "a sweep", TUNE: "a tuning", PAPER: "the section of the paper"}
"""The description of each kind of section in messages."""


def inherited(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections by name, each with the settings that it inherits at any depth, and without its key `like`.

    A section can inherit only from a section of the same kind. Sections whose names begin with ``_`` exist only to be
    inherited, and are not returned. Raises InputError if a section's name is not valid, if `like` does not name a
    section of the same kind, or if sections inherit from each other in a circle.
    """
    named = [name for name in sections if not name.startswith("_")]
    for name in named:
        _check_name(name)
    chains = {name: _chain(name, sections) for name in named}
    ordered = sorted(chains, key=lambda name: len(chains[name]))  # bases first: errors then name the right section
    own = {
        name: {key: section[key] for key in section if key != LIKE} if isinstance(section, Mapping) else section
        for name, section in sections.items()
    }
    return {name: reduce(deep_merge, (own[each] for each in reversed(chains[name])), {}) for name in ordered}


def deep_merge(base: Any, change: Any) -> Any:
    """Return `base` updated with `change` at any depth. Lists and the settings in `WHOLE` are replaced as a whole.

    A group in `base` may be written as one word, as in ``schedule: cosine``. If `change` sets further settings of that
    group, the meaning of the word is kept.
    """
    if not (isinstance(base, Mapping) and isinstance(change, Mapping)):
        return change
    kept = {name: None if name in WHOLE else spelt_out(name, base.get(name)) for name in change}
    return {**base, **{name: deep_merge(kept[name], value) for name, value in change.items()}}


def _chain(name: str, sections: Mapping[str, Any]) -> list[str]:
    chain = [name]
    while isinstance(section := sections[chain[-1]], Mapping) and LIKE in section:
        other, where = section[LIKE], f"{chain[-1]}.{LIKE}"
        _check_like(where, other, chain[-1], sections)
        if other in chain:
            raise InputError(f"{where} is {other!r}, which is like {chain[-1]} itself; take `like` out of one of them.")
        chain.append(other)
    return chain


def _check_like(where: str, other: Any, name: str, sections: Mapping[str, Any]) -> None:
    """Check that `other`, the value of `like` in the section `name`, names another section of the same kind.

    `where` is the path of this `like` in messages.
    """
    kind = kind_of(name)
    kin = [each for each in sections if kind_of(each) == kind and each != name]
    if isinstance(other, str) and other in kin:
        return
    offered = [each for each in kin if _has_settings_of(kind, sections[each])]
    if not isinstance(other, str):
        given = [each for each in other if each in offered] if isinstance(other, list) else []
        first = next(iter([*given, *(each for each in offered if not each.startswith("_")), *offered, name]))
        raise InputError(f"{where} is {written(other)}; it must be the name of a section, as in like: {first}.")
    hint = nearest(other, offered, f"choose from {', '.join(offered)}." if offered else "take it out.")
    if other == name:
        raise InputError(f"{where} is {other!r}, which is this section itself; {hint}")
    if other in sections:
        raise InputError(f"{where} is {other!r}, which is {WHAT[kind_of(other)]}, and {name} is {WHAT[kind]}; {hint}")
    raise InputError(f"{where} is {other!r}, which does not exist; {hint}")


def kind_of(name: str) -> str:
    """Return the kind of a section, a key of `MODELS`: the prefix of its name, ``paper``, or empty for experiments."""
    return next((kind for kind in (SWEEP, TUNE) if name.removeprefix("_").startswith(kind)), PAPER * (name == PAPER))


def _has_settings_of(kind: str, section: Any) -> bool:
    """Return whether all settings of a section belong to `kind`. A section that only holds a YAML anchor has others."""
    known = {LIKE, *rules(MODELS[kind])}
    return isinstance(section, Mapping) and known.issuperset(section)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[^\W_][\w-]*", name) or name.startswith(RESERVED):
        raise InputError(
            f"A section in conf/ is called {name!r}; pipelines and folders are named by it, so give it a name of "
            f"letters, digits, _ and - that does not begin with {' or '.join(RESERVED)}."
        )
