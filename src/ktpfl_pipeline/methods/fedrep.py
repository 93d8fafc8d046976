"""FedRep: all clients share the body of a model, and each has a head of its own.

Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for Personalized Federated Learning, ICML
2021, Algorithm 1, https://arxiv.org/abs/2102.07078. The head is the last linear layer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, average, wire_bytes


@dataclass(frozen=True, eq=False)
class FedRepState(PersonalState):
    """What crosses rounds: each client's model, of which only the head is its own; and the common body."""

    body: Params


@dataclass(frozen=True)
class PartStep:
    """SGD on a part of the model. Vectors: the model, and 1 where it may move and 0 where not."""

    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return w - η m ∘ g(w), and m."""
        w, moves = vectors
        return sgd(w, moves * gradient(w, group[0]), rate), moves


@dataclass(frozen=True)
class FedRep(Method[FedRepState]):
    """Key idea: features are common, and what to make of them is personal.

    Attributes:
        body_epochs: epochs of the body in a round, after the head's, which are what remains of E; 1 in the paper.
    """

    title = "FedRep"
    exchanges = frozenset({"parameters"})
    private_data = "its own training rule"
    one_architecture = True

    body_epochs: Annotated[int, Ge(0)] = 1

    def init(self, fed: Federation) -> FedRepState:
        """Start from the common initial model."""
        head, model = set(fed.head_names), fed.initial_model(fed.architecture)
        body = {name: tensor for name, tensor in model.items() if name not in head}
        return FedRepState(fed.common_models(), body)

    def round(self, state: FedRepState, cohort: list[int], t: int, fed: Federation) -> tuple[FedRepState, RoundReport]:
        """Send the body, train the head and then the body, upload and average the bodies."""
        body_epochs = min(self.body_epochs, fed.training.epochs)
        head = fed.head_mask
        tuned, _ = fed.train_by(
            PartStep(),
            self.personal(state, cohort, fed),
            t,
            dict.fromkeys(cohort, (head,)),
            fed.training.epochs - body_epochs,
            part="head",
        )
        trained, _ = fed.train_by(PartStep(), tuned, t, dict.fromkeys(cohort, (1.0 - head,)), body_epochs, part="body")
        bodies = [{name: trained[n][name] for name in state.body} for n in cohort]
        body = average(bodies, fed.data_weights(cohort))
        traffic = Traffic(parameters_up=wire_bytes(body), parameters_down=wire_bytes(body))
        after = FedRepState({**state.models, **trained}, body)
        return after, RoundReport(trained, dict.fromkeys(cohort, traffic))

    def personal(self, state: FedRepState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the common body with each client's own head."""
        return {n: {**state.models[n], **state.body} for n in clients}
