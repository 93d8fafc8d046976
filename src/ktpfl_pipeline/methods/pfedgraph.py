"""pFedGraph: the server infers which clients should collaborate, and mixes a model for each client accordingly.

Ye, Ni, Wu, Chen, Wang: Personalized Federated Learning with Inferred Collaboration Graphs, ICML 2023, section 4,
https://proceedings.mlr.press/v202/ye23b.html
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn.functional import normalize

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.blocks import among
from ktpfl_pipeline.core.matrix.updates import project
from ktpfl_pipeline.core.method import PersonalParameters, PersonalState, RoundReport
from ktpfl_pipeline.core.weights import Models, matrix_of, mix, select, vector_of


@dataclass(frozen=True)
class CosinePull:
    """SGD on the loss minus strength · cos(w, anchor).

    The vectors are the model w and its anchor, (d,) each. An anchor of zeros has no effect.

    Attributes:
        strength: weight of the pull toward the anchor's direction.
    """

    strength: float
    batches: int = 1

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return w - η (g(w) - strength ∇cos(w, anchor)), and the anchor."""
        w, anchor = vectors
        size, toward = w.norm().clamp_min(TINY), normalize(anchor, dim=0)
        slope = (toward - (toward @ w) / size**2 * w) / size
        return sgd(w, gradient(w, group[0]) - self.strength * slope, rate), anchor


@dataclass(frozen=True, eq=False)
class PFedGraphState(PersonalState):
    """The state between rounds: each client's mixture, in `models`, and its model after its last local training."""

    trained: Models


@dataclass(frozen=True)
class PFedGraph(PersonalParameters):
    """pFedGraph (Ye et al., 2023): clients collaborate if their models changed in similar directions.

    Clients with more samples get more weight. A client trains from the mixture that it receives.

    Attributes:
        report: the model that a client uses. ``before`` is the mixture, before local training. ``after`` is the model
            after the last local training. ``validation`` is whichever of both classifies more validation samples of the
            client correctly, and ``after`` for ties or without validation samples. The authors also choose by
            validation, among the models of all rounds.
        balance: α, the pull of a row of the graph toward the shares of samples; 0.8 in the authors' code.
        pull: λ in the term -λ cos(w, u) of the local loss, where u is the received mixture; 0.01 in the authors' code.
    """

    title = "pFedGraph"
    own_step = True
    fits_validation = True

    balance: Annotated[float, Gt(0)] = 0.8
    pull: Annotated[float, Ge(0)] = 0.01
    report: Literal["validation", "before", "after"] = "validation"

    def init(self, fed: Federation) -> PFedGraphState:
        """Start without models; a client gets a model in its first round."""
        return PFedGraphState(super().init(fed).models, {})

    def round(
        self, state: PFedGraphState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[PFedGraphState, RoundReport]:
        """Train near the last mixture, upload, infer the cohort's graph, mix, and download."""
        starts, names = super().personal(state, cohort, fed), fed.trained_names
        anchors = {n: (vector_of(start, names) * (n in state.models),) for n, start in starts.items()}
        trained, _ = fed.train_by(CosinePull(self.pull), starts, t, anchors)
        graph = self.graph(trained, fed)
        mixed = dict(zip(cohort, mix(list(trained.values()), graph), strict=True))
        shown = among(graph, fed.rows(cohort), len(fed.clients))
        traffic = exchange.both_ways(trained, self.late(state, cohort))
        after = PFedGraphState({**state.models, **mixed}, {**state.trained, **trained})
        return after, RoundReport(trained, traffic, shown)

    def personal(self, state: PFedGraphState, clients: Iterable[int], fed: Federation) -> Models:
        """Return each client's mixture or its last trained model, as `report` selects."""
        asked = list(clients)
        mixed = super().personal(state, asked, fed)
        if self.report == "before":
            return mixed
        trained = {n: state.trained.get(n, mixed[n]) for n in asked}
        if self.report == "after":
            return trained
        judges = [n for n in asked if n in state.trained and len(fed.by_id[n].validation)]
        before, after = (fed.evaluate(select(models, judges), "validation") for models in (mixed, trained))
        return {n: mixed[n] if n in before and before[n].accuracy > after[n].accuracy else trained[n] for n in asked}

    def graph(self, trained: Models, fed: Federation) -> Tensor:
        """Return the collaboration graph, (|S|, |S|) float64: row n has the weights of client n's mixture.

        Row n minimizes Σ_m c_m d_nm + α ‖c - a‖² on the simplex. d_nm is the negative cosine of the changes of models n
        and m from the initial model, and a are the shares of samples. The solution is the projection of a - d_n / 2α.
        """
        start = vector_of(fed.initial_model(fed.architecture), fed.trained_names)
        moved = normalize((matrix_of(list(trained.values()), fed.trained_names) - start).double(), dim=1)
        return project(fed.data_weights(list(trained)) + moved @ moved.T / (2.0 * self.balance))

    def sent(self, state: PersonalState, clients: list[int], fed: Federation) -> Models:
        """Return the average of the mixtures of clients that took part, weighted by numbers of samples.

        The change of a model that was never trained has no direction, so the graph has no row for its client.
        """
        seen = [n for n in fed.by_id if n in state.models]
        if not seen:
            return super().sent(state, clients, fed)
        return dict.fromkeys(clients, fed.average(select(state.models, seen)))
