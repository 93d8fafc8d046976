"""FedGH: the server trains one head on the class means of all clients, and this head replaces the clients' heads.

Yi, Wang, Liu, Shi, Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header, ACM MM 2023,
Algorithm 1, https://arxiv.org/abs/2303.13137. A class mean is the paper's local averaged representation: the mean of
features, pooled to a common dimension F by averaging neighboring entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.weights import Models, Params, params_of, select, wire_bytes
from ktpfl_pipeline.methods.lg_fedavg import CommonHeadState, LGFedAvg
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True, eq=False)
class FedGHState(CommonHeadState):
    """The state between rounds: each client's model, the shared head, and the average class means.

    Attributes:
        prototypes: (K, F) float64, zeros for a class that no client has uploaded yet.
        known: (K,) bool, which classes have a prototype.
    """

    prototypes: Tensor
    known: Tensor


@dataclass(frozen=True)
class FedGH(LGFedAvg):
    """FedGH (Yi et al., 2023): a head trained on all clients' classes generalizes better than a client's own.

    Attributes:
        rate: the server's step size.
        steps: the server's steps per round, each on all uploaded means.
        prediction: how clients classify: by the shared ``head``, as in the paper, or by the ``nearest_prototype`` (or
            ``nearest_own_prototype``, as in FedProto), averages of the uploaded means that the server then also sends.
    """

    title = "FedGH"
    exchanges = frozenset({"parameters", "prototypes"})

    rate: Annotated[float, Gt(0)] = 0.1
    steps: Annotated[int, Ge(1)] = 100
    prediction: common_head.Prediction = "head"

    def init(self, fed: Federation) -> FedGHState:
        """Start from the initial models and one head, without prototypes."""
        start = super().init(fed)
        return FedGHState(start.models, start.head, *common_head.no_prototypes(fed, self.dimension))

    def round(self, state: FedGHState, cohort: list[int], t: int, fed: Federation) -> tuple[FedGHState, RoundReport]:
        """Train with the shared head, upload class means, and train the head on the class means at the server."""
        trained, _ = common_head.train(fed, select(state.models, cohort), self.heads(state, cohort, fed), t)
        means, owned = common_head.upload_means(fed, trained, self.dimension)  # (|S|, K, F), (|S|, K)
        labels = owned.nonzero()[:, 1]  # (M,) of the M uploaded means
        recipe = Recipe(self.steps, len(labels), self.rate)
        head = fed.fuse("head", train_head, state.head, recipe, t, means[owned], labels)
        down = self.download(state, fed)
        traffic = {
            n: replace(down, prototypes_up=4 * self.dimension * own)
            for n, own in zip(cohort, owned.sum(dim=1).tolist(), strict=True)
        }
        averages = common_head.averaged(means, owned, state.prototypes, state.known)
        return FedGHState({**state.models, **trained}, head, *averages), RoundReport(trained, traffic)

    def download(self, state: FedGHState, fed: Federation) -> Traffic:
        """Return the traffic of what the server sends to a client."""
        prototypes = 0 if self.prediction == "head" else 4 * self.dimension * fed.classes
        return Traffic(parameters_down=wire_bytes(state.head), prototypes_down=prototypes)

    def classified(self, models: Models, state: FedGHState, fed: Federation) -> Models:
        """Return models with the shared head as the client uses them."""
        return common_head.classified(fed, models, state.prototypes, state.known, self.prediction)

    def personal(self, state: FedGHState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the clients' own extractors with the shared head or the prototypes."""
        return self.classified(super().personal(state, clients, fed), state, fed)

    def adapt(self, state: FedGHState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the clients' extractors after training together with a copy of the shared head."""
        return self.classified(super().adapt(state, models, epochs, fed), state, fed)

    def join(self, state: FedGHState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send new clients what the server sends to others; their extractors are the initial ones."""
        models = self.classified(super().join(state, there, newcomers, fed).models, state, fed)
        return Joined(models, dict.fromkeys(newcomers, self.download(state, fed)))


def train_head(
    space: Workspace,
    name: str,
    head: Params,
    recipe: Recipe,
    t: int,
    means: Tensor,
    labels: Tensor,
    reduction: str = "mean",
) -> Outcome[Params]:
    """Train the server's head on the cross-entropy of the class means, (M, F), and their classes `labels`.

    `labels` are classes, (M,), or probabilities of classes, (M, K).
    """
    module, inputs = space.linear(head), means.to(space.device, space.dtype)
    targets = labels.to(space.device, space.dtype if labels.is_floating_point() else None)

    def loss(batch: Tensor) -> Tensor:
        return F.cross_entropy(module(inputs[batch]), targets[batch], reduction=reduction)

    outcome = descend(space, module, loss, len(labels), recipe, t, space.setting.stream("server shuffle", t))
    return outcome.giving(params_of(module))
