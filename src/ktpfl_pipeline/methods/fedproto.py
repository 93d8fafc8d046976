"""FedProto: clients share the mean feature of each class, and draw their own features toward it.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022,
Algorithm 1, https://arxiv.org/abs/2105.00243. A feature is what enters a model's head; those of
different architectures meet in a common dimension F by averaging neighbours. A client classifies with its own head.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.features import features
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, params_of, select
from ktpfl_pipeline.methods.shared import common_head


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
        dimension: F, the common dimension of the features; 512 as in HtFLlib, and the best of four that were measured.
    """

    title = "FedProto"
    exchanges = frozenset({"prototypes"})
    private_data = "its own training rule and class means"
    needs_head = "layer"

    weight: Annotated[float, Ge(0)] = 1.0
    dimension: Annotated[int, Ge(1)] = 512

    def init(self, fed: Federation) -> FedProtoState:
        """Start from the common initial models, with no prototypes."""
        empty = torch.zeros(fed.classes, self.dimension, dtype=torch.float64, device=fed.device)
        return FedProtoState(fed.initial_models(), empty, empty.new_zeros(fed.classes, dtype=torch.bool))

    def round(
        self, state: FedProtoState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedProtoState, RoundReport]:
        """Train toward the prototypes, upload those of the own classes, average them over the clients that have one."""
        trained = self.train(select(state.models, cohort), state.prototypes, state.known, t, fed)
        means, counts = common_head.upload_means(fed, trained, self.dimension)  # (|S|, K, F), (|S|, K)
        owned = counts > 0
        after = self.aggregate(state, means, owned, t, fed)
        traffic = exchange.prototypes(cohort, owned, self.dimension)
        return replace(after, models={**state.models, **trained}), RoundReport(trained, traffic)

    def aggregate(self, state: FedProtoState, means: Tensor, owned: Tensor, t: int, fed: Federation) -> FedProtoState:
        """Return the state with each class's prototype the average of its owners' means, each counting alike.

        Arguments of its own:
            means: (|S|, K, F) the cohort's class means, zeros where a client has no sample of the class.
            owned: (|S|, K) bool, where it has one.
        """
        owners = owned.sum(dim=0)  # (K,)
        shown = owners > 0
        averaged = means.sum(dim=0) / owners.clamp_min(1)[:, None]
        return replace(
            state, prototypes=torch.where(shown[:, None], averaged, state.prototypes), known=state.known | shown
        )

    def train(self, models: Models, prototypes: Tensor, known: Tensor, t: int, fed: Federation) -> Models:
        """Return each model trained with its features drawn toward class prototypes; see `train_client`."""
        calls = {n: (params, prototypes, known, self.weight, t) for n, params in models.items()}
        return fed.run_training("train", train_client, calls, models, uses="trains toward prototypes")

    def join(self, state: FedProtoState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send newcomers the prototypes; their models are the initial ones."""
        traffic = Traffic(prototypes_down=4 * int(state.known.sum()) * self.dimension)
        return Joined(select(fed.initial_models(), newcomers), dict.fromkeys(newcomers, traffic))

    def settle(self, state: FedProtoState, models: Models, epochs: int, fed: Federation) -> Models:
        """Train newcomers toward the prototypes, which stay as they are."""
        calls = {n: (params, state.prototypes, state.known, self.weight, 0, epochs) for n, params in models.items()}
        uses = "trains toward prototypes"
        return fed.run_training("train", train_client, calls, models, uses=uses, thrown_away=True)


def train_client(
    space: Workspace,
    n: int,
    params: Params,
    prototypes: Tensor,
    known: Tensor,
    weight: float,
    t: int,
    epochs: int | None = None,
) -> Outcome[Params]:
    """Train E epochs on CE + λ·MSE(feature, prototype of the sample's class) over client n's data.

    With λ = 0 this is local training, to the bit. A sample of a class that has no prototype yet counts zero in the
    second term.

    Arguments of its own:
        prototypes: (K, F).
        known: (K,) bool, which classes have a prototype.
        weight: λ.
        epochs: in place of E.
    """
    own = PrivateSamples(space, n, t)
    module = space.module(n, params).train()
    _, head = space.head(n, module)
    targets, counted = prototypes.to(space.device, space.dtype), known.to(space.device, space.dtype)

    cross_entropy = own.cross_entropy(module)

    def loss(batch: Tensor) -> Tensor:
        labels = own.labels[batch]
        with features(head, targets.shape[1]) as seen:
            fit = cross_entropy(batch)
        error = (seen.pop() - targets[labels]).square().mean(dim=1)  # (b,)
        return fit + weight * (error * counted[labels]).mean()

    value = own.descend(module, loss, epochs)
    return Outcome(params_of(module), value)
