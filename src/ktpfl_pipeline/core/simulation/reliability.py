"""Draws of clients that drop out of rounds, come late, or have limited compute; `settings.Reliability` sets how many.

Draws are from named streams of the run, so the clients are the same for every method, and after resuming. What follows
from a draw is in `core/rounds/cohort.py` (rounds), `core/exchange.py` (late predictions) and `Setting.affordable`
(epochs).
"""

from collections.abc import Iterable

import torch

from ktpfl_pipeline.core import rng


def absent(cohort: Iterable[int], availability: float, t: int, seed: int) -> list[int]:
    """Return the clients of a sampled cohort that drop out of round t, each with the chance 1 - `availability`."""
    chance = {n: float(torch.rand((), generator=rng.stream(seed, "availability", t, n))) for n in cohort}
    return [n for n, drawn in chance.items() if drawn >= availability]


def drawn(purpose: str, share: float, clients: Iterable[int], seed: int) -> list[int]:
    """Return round(share · N) of the clients, ascending; a smaller share gives a subset of a larger one's.

    Args:
        purpose: the name of the random stream.
        share: the share of the clients.
        clients: all ids.
        seed: the seed of the run.
    """
    ids = sorted(clients)
    order = torch.randperm(len(ids), generator=rng.stream(seed, purpose)).tolist()
    return sorted(ids[place] for place in order[: round(share * len(ids))])
