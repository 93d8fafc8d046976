"""Sections of conf/ that say only what differs from another: ``like: hetero_digits``."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.config import checks
from ktpfl_pipeline.config.studies import SWEEP, TUNE
from ktpfl_pipeline.config.values import spelt_out
from ktpfl_pipeline.core.errors import InputError

LIKE = "like"
"""The key that names the section from which is taken what a section leaves out."""
WHOLE = ("architectures",)
"""Settings whose mapping is one value: a federation of 9 LeNets and 3 MLPs, say."""
RESERVED = ("compare_", "overview")
"""How no experiment's name begins: pipelines are called so."""


def inherited(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return every section with what it leaves out taken from the one that it is `like`, at any depth.

    Those whose names begin with ``_`` are there to be like, and left out.

    Args:
        sections: by name; experiments, sweeps and tunings, each like one of its kind.

    Raises:
        InputError: if a name cannot be a pipeline's, there is no such section, or sections are like each other in a
            circle.
    """
    named = [name for name in sections if not name.startswith("_")]
    for name in named:
        _check_name(name)
    chains = {name: _chain(name, sections) for name in named}
    ordered = sorted(chains, key=lambda name: len(chains[name]))  # what is wrong is told of whom it was said
    return {name: _complete([sections[each] for each in reversed(chains[name])]) for name in ordered}


def deep_merge(base: Any, change: Any) -> Any:
    """Return `base` with the values of `change` in place, at any depth; lists and `WHOLE` settings are replaced.

    A word that stands for a group, as in ``schedule: cosine``, is kept where `change` sets more of that group.
    """
    if not (isinstance(base, Mapping) and isinstance(change, Mapping)):
        return change
    kept = {name: None if name in WHOLE else spelt_out(name, base.get(name)) for name in change}
    return {**base, **{name: deep_merge(kept[name], value) for name, value in change.items()}}


def _chain(name: str, sections: Mapping[str, Any]) -> list[str]:
    """Return a section's name, that of the section that it is like, and so on."""
    chain = [name]
    while isinstance(section := sections[chain[-1]], Mapping) and LIKE in section:
        other, where = section[LIKE], f"{chain[-1]}.{LIKE}"
        kin = [each for each in sections if _kind(each) == _kind(name) and each != chain[-1]]
        if not isinstance(other, str):
            raise InputError(
                f"{where} is {other!r}; it must be the name of a section, as in like: {(kin or [name])[0]}."
            )
        checks.check_known(where, other, kin)
        if other in chain:
            raise InputError(f"{where} is {other!r}, which is like {chain[-1]} itself; take `like` out of one of them.")
        chain.append(other)
    return chain


def _complete(sections: Sequence[Any]) -> Any:
    """Return sections laid over one another, the last on top."""
    found: Any = {}
    for own in sections:
        found = deep_merge(found, {key: own[key] for key in own if key != LIKE} if isinstance(own, Mapping) else own)
    return found


def _kind(name: str) -> str:
    return next((kind for kind in (SWEEP, TUNE) if name.removeprefix("_").startswith(kind)), "")


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[^\W_][\w-]*", name) or name.startswith(RESERVED):
        raise InputError(
            f"A section in conf/ is called {name!r}; pipelines and folders are named by it, so give it a name of "
            f"letters, digits, _ and - that does not begin with {' or '.join(RESERVED)}."
        )
