"""FedProto: clients share the mean feature of each class, and pull their own features toward it.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022,
Algorithm 1, https://arxiv.org/abs/2105.00243. A feature is the input of a model's head, pooled to a common dimension F
by averaging neighboring entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.weights import Models, Params, params_of, select
from ktpfl_pipeline.methods.shared import common_head


@dataclass(frozen=True, eq=False)
class FedProtoState(PersonalState):
    """The state between rounds: each client's model, and the global prototypes.

    Attributes:
        prototypes: (K, F) float64, zeros for a class that no client has uploaded yet.
        known: (K,) bool, which classes have a prototype.
    """

    prototypes: Tensor
    known: Tensor


@dataclass(frozen=True)
class FedProto(Personal):
    """FedProto (Tan et al., 2022): clients share class means of features, also between different architectures.

    Attributes:
        weight: λ, the weight of the squared distance to the prototype in the local loss; 1 in the paper.
        dimension: F, the common dimension of the features; 512 as in HtFLlib, the best of four measured values.
        prediction: how clients classify: by the ``nearest_prototype``, as in the paper; by the
            ``nearest_own_prototype``, only of classes that the client has, as in the authors' code; or by their own
            ``head``.
    """

    title = "FedProto"
    exchanges = frozenset({"prototypes"})
    needs_head = "biased"

    weight: Annotated[float, Ge(0)] = 1.0
    dimension: Annotated[int, Ge(1)] = 512
    prediction: common_head.Prediction = "nearest_prototype"

    def misfits(self, setting: Setting) -> dict[str, str]:
        """Return the architectures without a head as `prediction` needs it, each with the reason."""
        found = {} if self.prediction == "head" else super().misfits(setting)
        without = {name: setting.facts(name).lacks("layer") for name in self.architectures(setting)}
        hint = "; prediction: head does not need this"
        return {name: reason or f"{found[name]}{hint}" for name, reason in without.items() if reason or name in found}

    def init(self, fed: Federation) -> FedProtoState:
        """Start from the initial models, without prototypes."""
        return FedProtoState(fed.initial_models(), *common_head.no_prototypes(fed, self.dimension))

    def round(
        self, state: FedProtoState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedProtoState, RoundReport]:
        """Train toward the prototypes, upload the means of owned classes, average each class over its owners."""
        trained = self.train(select(state.models, cohort), state.prototypes, state.known, t, fed)
        means, owned = common_head.upload_means(fed, trained, self.dimension)  # (|S|, K, F), (|S|, K)
        after = self.aggregate(state, means, owned, t, fed)
        traffic = exchange.prototypes(cohort, owned, self.dimension)
        return replace(after, models={**state.models, **trained}), RoundReport(trained, traffic)

    def aggregate(self, state: Any, means: Tensor, owned: Tensor, t: int, fed: Federation) -> FedProtoState:
        """Return the state with the unweighted averages of `common_head.averaged` as prototypes."""
        prototypes, known = common_head.averaged(means, owned, state.prototypes, state.known)
        return FedProtoState(state.models, prototypes, known)

    def personal(self, state: FedProtoState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the clients' own models, which classify by the global prototypes if `prediction` says so."""
        return self.classified(super().personal(state, clients, fed), state, fed)

    def classified(self, models: Models, state: FedProtoState, fed: Federation) -> Models:
        """Return models with their own heads as the client uses them."""
        return common_head.classified(fed, models, state.prototypes, state.known, self.prediction)

    def adapt(self, state: FedProtoState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the clients' own models after plain local training, which also trains their own heads."""
        return self.classified(fed.fine_tune(super().personal(state, models, fed), epochs), state, fed)

    def train(
        self, models: Models, prototypes: Tensor, known: Tensor, t: int, fed: Federation, epochs: int | None = None
    ) -> Models:
        """Return each model after training with its features pulled toward class prototypes; see `train_client`."""
        return fed.train_with(train_client, models, t, prototypes, known, self.weight, epochs)

    def join(self, state: FedProtoState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send new clients the prototypes; their models are the initial ones."""
        traffic = exchange.all_prototypes(fed.classes, self.dimension)
        models = self.classified(select(fed.initial_models(), newcomers), state, fed)
        return Joined(models, dict.fromkeys(newcomers, traffic))

    def settle(self, state: FedProtoState, models: Models, epochs: int, fed: Federation) -> Models:
        """Train new clients toward the prototypes of the last round."""
        models = super().personal(state, models, fed)
        trained = self.train(models, state.prototypes, state.known, 0, fed, epochs)
        return self.classified(trained, state, fed)


def train_client(
    space: Workspace,
    n: int,
    params: Params,
    t: int,
    prototypes: Tensor,
    known: Tensor,
    weight: float,
    epochs: int | None = None,
) -> Outcome[Params]:
    """Train E epochs, or `epochs`, on `common_head.aligned` with the global prototypes, (K, F), over client n's data.

    With λ = 0 the training equals local training bit for bit; λ is `weight`.
    """
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()
    outcome = own.descend(module, common_head.aligned(space, n, own, module, prototypes, known, weight), epochs)
    return outcome.giving(params_of(module))
