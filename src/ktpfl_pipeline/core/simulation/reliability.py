"""Clients that drop out of rounds, come late, or cannot afford all epochs: a setting of the simulation.

Who they are is drawn from named streams of the run, so it is the same for every method, and after resuming. What then
happens is told where it does: rounds in `core/rounds/cohort.py`, late predictions in `core/exchange.py`, epochs in
`Setting.affordable`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ktpfl_pipeline.core import rng


@dataclass(frozen=True)
class Stragglers:
    """Clients whose uploads arrive late, the same ones in all rounds.

    Attributes:
        share: of the clients; round(share · N) are stragglers, 0 is none.
        delay: how many rounds late.
    """

    share: float = 0.0
    delay: int = 1


@dataclass(frozen=True)
class Budgets:
    """Clients that cannot afford E epochs of local training, the same ones in all rounds.

    Attributes:
        share: of the clients; round(share · N) have such a budget, 0 is none.
        epochs: the share of the epochs that these take, one at least.
    """

    share: float = 0.0
    epochs: float = 0.25


@dataclass(frozen=True)
class Reliability:
    """How far clients can be relied on.

    Attributes:
        availability: the chance that a sampled client shows up in a round.
        stragglers: who is late.
        budgets: who trains less.
    """

    availability: float = 1.0
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
