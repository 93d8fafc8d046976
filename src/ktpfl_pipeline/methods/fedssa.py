"""FedSSA: clients share the rows of their heads that belong to their classes, and fuse them with their own rows.

Yi, Yu, Shi, Wang, Liu, Cui, Li: FedSSA: Semantic Similarity-based Aggregation for Efficient Model-Heterogeneous
Personalized Federated Learning, IJCAI 2024, https://arxiv.org/abs/2312.09006. The header of the paper is the head of
LG-FedAvg: its input is pooled to a common dimension F by averaging neighboring entries.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params, select
from ktpfl_pipeline.methods.lg_fedavg import CommonHeadState, LGFedAvg
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True, eq=False)
class FedSSAState(CommonHeadState):
    """The state between rounds: each client's model, the global head, and each client's own head.

    Attributes:
        own: the head that each client trained in its last round, ``weight`` (K, F) and ``bias`` (K,).
        round: t, the last round.
    """

    own: Models
    round: int


@dataclass(frozen=True)
class FedSSA(LGFedAvg):
    """FedSSA (Yi et al., 2024): heads are averaged by class over the clients that have the class.

    Attributes:
        start: μ₀, the first weight of the client's own rows next to the global ones; 0.5 in the authors' code.
        stable: T_stable, the number of rounds after which this weight is 0; 2 in the authors' code for several
            architectures.
    """

    title = "FedSSA"

    start: Annotated[float, Ge(0)] = 0.5
    stable: Annotated[int, Ge(1)] = 2

    def init(self, fed: Federation) -> FedSSAState:
        """Start from the initial models and one head."""
        start = super().init(fed)
        return FedSSAState(start.models, start.head, {}, 0)

    def round(self, state: FedSSAState, cohort: list[int], t: int, fed: Federation) -> tuple[FedSSAState, RoundReport]:
        """Fuse global and own rows, train, upload the rows of own classes, and average each over its owners."""
        trained, heads = common_head.train(fed, select(state.models, cohort), self.heads(state, cohort, fed), t)
        owned = fed.class_counts(cohort) > 0  # (|S|, K)
        head = {name: averaged([heads[n][name] for n in cohort], owned, old) for name, old in state.head.items()}
        sizes = (4 * (self.dimension + 1) * owned.sum(dim=1)).tolist()
        traffic = {n: Traffic(parameters_up=size, parameters_down=size) for n, size in zip(cohort, sizes, strict=True)}
        after = FedSSAState({**state.models, **trained}, head, {**state.own, **heads}, t)
        return after, RoundReport(trained, traffic)

    def heads(self, state: FedSSAState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the head with which each of `clients` would start the next round.

        The row of a class that the client has is φ + μ φ_n, where φ is the global row, φ_n its own, and
        μ = μ₀ cos(π t / (2 T_stable)) up to round t = T_stable, then 0. The rows of other classes are its own. A client
        that never took part starts from the global head.
        """
        asked, last = list(clients), state.round
        mu = self.start * math.cos(math.pi * last / (2 * self.stable)) if last <= self.stable else 0.0
        owned = dict(zip(asked, fed.class_counts(asked) > 0, strict=True))
        return {n: fused(state.own[n], state.head, owned[n], mu) if n in state.own else state.head for n in asked}


def averaged(heads: list[Tensor], owned: Tensor, old: Tensor) -> Tensor:
    """Return the mean of each class's rows over its owners, (K, ...); without an owner it is the `old` row.

    `heads` are (K, ...) each; `owned`, (|S|, K), says who has which class.
    """
    rows = torch.stack(heads).double()
    share = sent(owned.double() / owned.sum(dim=0).clamp_min(1), rows.device)  # (|S|, K)
    known = sent(owned.any(dim=0), rows.device)
    mean = torch.einsum("nk,nk...->k...", share, rows).to(old.dtype)
    return torch.where(known.view(-1, *[1] * (old.dim() - 1)), mean, old)


def fused(own: Params, common: Params, owned: Tensor, mu: float) -> Params:
    """Return a head with the rows φ + μ φ_n of the `owned` classes, (K,), and its `own` rows of all others."""
    known = sent(owned, next(iter(own.values())).device)
    rows = {name: known.view(-1, *[1] * (row.dim() - 1)) for name, row in own.items()}
    return {name: torch.where(rows[name], common[name] + mu * row, row) for name, row in own.items()}
