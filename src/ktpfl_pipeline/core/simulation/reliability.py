"""Clients that drop out of rounds, come late, or cannot afford all epochs: a setting of the simulation.

Who they are is drawn from named streams of the run, so it is the same for every method, and after resuming. What then
happens is told where it does: rounds in `core/rounds/cohort.py`, late predictions in `core/exchange.py`, epochs in
`Setting.affordable`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.validation import Chance, Count, Fraction


@dataclass(frozen=True)
class Stragglers:
    """Clients whose uploads arrive late, the same clients in all rounds.

    Where clients upload only predictions, a straggler's predictions are those of its model `delay` rounds ago. With
    other methods a straggler misses `delay` rounds after each round in which it takes part.

    Attributes:
        share: the share of stragglers; there are round(share · N).
        delay: how many rounds late they are.
    """

    share: Chance = 0.0
    delay: Count = 1


@dataclass(frozen=True)
class Budgets:
    """Clients with limited compute, which train fewer than E epochs, the same clients in all rounds.

    Attributes:
        share: the share of such clients; there are round(share · N).
        epochs: the share of the E epochs that they train; at least one epoch.
    """

    share: Chance = 0.0
    epochs: Fraction = 0.25


@dataclass(frozen=True)
class Reliability:
    """How far clients can be relied on.

    Attributes:
        availability: the chance that a sampled client shows up in a round.
        stragglers: who is late.
        budgets: who trains less.
    """

    availability: Fraction = 1.0
    stragglers: Stragglers = Stragglers()
    budgets: Budgets = Budgets()

    def absent(self, cohort: Iterable[int], t: int, seed: int) -> list[int]:
        """Return who of a sampled cohort does not show up in round t."""
        chance = {n: float(torch.rand((), generator=rng.stream(seed, "availability", t, n))) for n in cohort}
        return [n for n, drawn in chance.items() if drawn >= self.availability]


def drawn(purpose: str, share: float, clients: Iterable[int], seed: int) -> list[int]:
    """Return round(share · N) of the clients, ascending; those of a smaller share are among a larger one's.

    Args:
        purpose: names the stream.
        share: of the clients.
        clients: all ids.
        seed: of the run.
    """
    ids = sorted(clients)
    order = torch.randperm(len(ids), generator=rng.stream(seed, purpose)).tolist()
    return sorted(ids[place] for place in order[: round(share * len(ids))])
