"""The assignment of architectures to clients: the forms that `architectures` may have, and how each is applied.

The names in a list are assigned to the clients in turn. A mapping may give each architecture a number or a share of
clients; architectures are then assigned in turn until each has its number. A mapping may also name the architecture of
each client.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.core.errors import InputError, plural

Architectures = Sequence[str] | Mapping[str, int | float | str]
"""The value of `architectures` after `checked`. Client ids are strings, because JSON keys are strings."""


def checked(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping given as `architectures`, with strings as keys. Raises ValueError if its form is not allowed.

    This function does not check whether the names and the clients exist.
    """
    keys = {str(key): value for key, value in mapping.items()}
    kinds = {type(value) for value in keys.values()}
    if kinds == {str} and all(key.isdecimal() for key in keys):
        return keys
    positive = kinds <= {int, float} and all(0 < value <= 2**31 - 1 for value in keys.values())
    if not keys or len(kinds) > 1 or not positive or any(key.isdecimal() for key in keys):
        raise ValueError(
            "a list of names; or names with numbers of clients, {lenet: 10, cnn: 10}, or with shares of "
            "them, {lenet: 0.5, cnn: 0.5}; or clients with names, {0: lenet, 1: cnn}"
        )
    return keys


def names(given: Architectures) -> list[str]:
    found: Any = given
    if isinstance(given, Mapping) and any(isinstance(value, str) for value in given.values()):
        found = given.values()
    return list(dict.fromkeys(found))


def dealt(given: Architectures, clients: Sequence[int]) -> dict[int, str]:
    """Return the architecture of each client by id, from the value of `architectures` and the ids of all `clients`.

    Raises InputError if numbers do not add up to the number of clients, shares do not add up to 1, or a mapping by
    client lacks a client or names an unknown one.
    """
    if not isinstance(given, Mapping):
        return {n: given[place % len(given)] for place, n in enumerate(clients)}
    if names(given) != list(given):
        return _by_client(given, clients)
    counts = _counts({name: float(value) for name, value in given.items()}, len(clients))
    turns = max(counts.values())
    order = [name for turn in range(turns) for name, count in counts.items() if turn < count]
    return dict(zip(clients, order, strict=True))


def _by_client(given: Mapping[str, Any], clients: Sequence[int]) -> dict[int, str]:
    known = set(map(str, clients))
    if missing := [n for n in clients if str(n) not in given]:
        raise InputError(
            f"architectures has no entry for client {missing[0]}; name one for each of the "
            f"{plural(len(clients), 'client')}."
        )
    if odd := [n for n in given if n not in known]:
        raise InputError(
            f"architectures has an entry for client {odd[0]}, but the clients are {clients[0]} to {clients[-1]}."
        )
    return {n: given[str(n)] for n in clients}


def _counts(given: Mapping[str, float], clients: int) -> dict[str, int]:
    """Return the number of clients of each architecture. Shares are rounded by the largest-remainder method."""
    total = sum(given.values())
    if total == clients and all(value == int(value) for value in given.values()):
        return {name: int(value) for name, value in given.items()}
    if abs(total - 1) > 1e-6:
        raise InputError(
            f"architectures adds up to {total:g}; numbers must add up to the {plural(clients, 'client')} and "
            "shares to 1."
        )
    counts = {name: int(value * clients + 1e-9) for name, value in given.items()}
    left = sorted(given, key=lambda name: counts[name] - given[name] * clients)
    for name in left[: clients - sum(counts.values())]:
        counts[name] += 1
    if none := [name for name, count in counts.items() if not count]:
        raise InputError(
            f"architectures has {none[0]} with a share of {given[none[0]]:g}, which gives it no client of {clients}: "
            "raise the share, or remove it."
        )
    return counts
