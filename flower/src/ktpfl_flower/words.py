"""What messages say of several clients: equal reasons are said once."""

from collections.abc import Mapping


def listed(why: Mapping[int, str]) -> str:
    """Return why each client is out, equal reasons together: ``clients 1 and 2 gave no answer to train``."""
    by_reason: dict[str, list[int]] = {}
    for n, reason in why.items():
        by_reason.setdefault(reason.rstrip("."), []).append(n)
    return "; ".join(f"{named(clients)} {reason}" for reason, clients in by_reason.items())


def named(clients: list[int]) -> str:
    """Return what one or several clients are called."""
    *others, last = map(str, clients)
    return f"clients {', '.join(others)} and {last}" if others else f"client {last}"
