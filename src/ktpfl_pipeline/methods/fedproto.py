"""FedProto: clients share the mean feature of each class, and draw their own features toward it.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022,
Algorithm 1, https://arxiv.org/abs/2105.00243. Features of different architectures meet in a common dimension by
averaging neighbours (`core/prototypes.py`); a client classifies with its own head.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import select


@dataclass(frozen=True, eq=False)
class FedProtoState(PersonalState):
    """What crosses rounds: each client's model, and the global prototypes.

    Attributes:
        prototypes: (K, F) float64, zeros for a class that no client has shown yet.
        known: (K,) bool, which classes have one.
    """

    prototypes: Tensor
    known: Tensor


@dataclass(frozen=True)
class FedProto(Personal):
    """Key idea: what a class looks like inside a model can be shared, where the models cannot.

    Attributes:
        weight: λ of the squared distance to the prototype in the local loss; 1 in the paper.
        dimension: F, the common dimension of the features.
    """

    title = "FedProto"
    exchanges = frozenset({"prototypes"})
    private_data = "its own training rule and class means"

    weight: Annotated[float, Ge(0)] = 1.0
    dimension: Annotated[int, Ge(1)] = 64

    def init(self, fed: Federation) -> FedProtoState:
        """Start from the common initial models, with no prototypes."""
        empty = torch.zeros(fed.classes, self.dimension, dtype=torch.float64, device=fed.device)
        return FedProtoState(fed.initial_models(), empty, torch.zeros(fed.classes, dtype=torch.bool, device=fed.device))

    def round(
        self, state: FedProtoState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedProtoState, RoundReport]:
        """Train toward the prototypes, upload those of the own classes, average them over the clients that have one."""
        models = select(state.models, cohort)
        trained = fed.train_to_prototypes(models, state.prototypes, state.known, self.weight, t)
        means, counts = fed.class_means(trained, self.dimension)  # (|S|, K, F), (|S|, K)
        owned = counts > 0
        owners = owned.sum(dim=0)  # (K,)
        averaged = means.sum(dim=0) / owners.clamp_min(1)[:, None]  # a client without the class adds zeros
        shown = owners > 0
        prototypes = torch.where(shown[:, None], averaged, state.prototypes)
        vector = 4 * self.dimension
        traffic = {
            n: Traffic(prototypes_up=own * vector, prototypes_down=fed.classes * vector)
            for n, own in zip(cohort, owned.sum(dim=1).tolist(), strict=True)
        }
        after = FedProtoState({**state.models, **trained}, prototypes, state.known | shown)
        return after, RoundReport(trained, traffic)
