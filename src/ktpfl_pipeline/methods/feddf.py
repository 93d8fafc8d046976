"""FedDF: models are averaged within an architecture, and each average learns from the ensemble of all clients.

Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS 2020, Algorithm 3
(heterogeneous prototypes), https://arxiv.org/abs/2006.07242. There are two variants: `FedDFSoft` exchanges only
predictions, and `PFedDF` is KT-pFL's personalized version with local fine-tuning.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.method import FineTuned, Method, Personal, PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.weights import Models, Prototypes, select


@dataclass(frozen=True, eq=False)
class FedDFState:
    """The state between rounds: the server model of each architecture."""

    prototypes: Prototypes


@dataclass(frozen=True)
class FedDF(Method[FedDFState]):
    """FedDF (Lin et al., 2020): the ensemble of all clients teaches one server model per architecture.

    The server holds the public samples, so they are not sent. The server distills for R epochs with the SGD that the
    clients of other methods use for distillation. The original uses Adam and early stopping on validation data.
    """

    title = "FedDF"
    covered = True
    exchanges = frozenset({"parameters"})
    needs_public = True  # the server distills on public samples
    paper_name = "FedDF"

    def init(self, fed: Federation) -> FedDFState:
        """Start from the common initial models."""
        return FedDFState(fed.initial_prototypes())

    def round(self, state: FedDFState, cohort: list[int], t: int, fed: Federation) -> tuple[FedDFState, RoundReport]:
        """Train from the server models, average within each architecture, distill the ensemble into each average."""
        trained = fed.train(FedDF.personal(self, state, cohort, fed), t)
        groups = fed.of_one_architecture(cohort).items()
        averages: Prototypes = {name: fed.average(select(trained, group)) for name, group in groups}
        batch = fed.public_batch(t)
        ensemble = fed.logits(trained, batch, t, uploaded=False).double().mean(dim=0)  # (B, K): of logits
        teacher = soft_predictions(ensemble, fed.distillation.temperature)
        fused = fed.distill(averages, teacher, batch, t)
        return FedDFState({**state.prototypes, **fused}), RoundReport(trained, exchange.both_ways(trained))

    def personal(self, state: FedDFState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the server model of each client's architecture."""
        return {n: state.prototypes[fed.by_id[n].architecture] for n in clients}

    def join(self, state: FedDFState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give new clients the server model of their architecture, or the initial model if there is none."""
        return given(FedDF.personal(self, FedDFState({**fed.initial_prototypes(), **state.prototypes}), newcomers, fed))


@dataclass(frozen=True)
class PFedDF(FineTuned, FedDF):
    """pFedDF (Zhang et al., 2021): each client fine-tunes a copy of its architecture's server model.

    A footnote of the KT-pFL paper specifies "several epochs" of fine-tuning.
    """

    title = "pFedDF"
    paper_name = "pFedDF"


@dataclass(frozen=True)
class FedDFSoft(Personal):
    """FedDF (soft): FedDF without parameters; each client learns from the average of all logits."""

    title = "FedDF (soft)"
    covered = True
    paper_name = "FedDF"

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, average the logits, distill."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach(fed, state, upload, self.consensus(upload.logits, fed), t)

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return the softmax of the mean logits, (B, K)."""
        return soft_predictions(logits.double().mean(dim=0), fed.distillation.temperature)


@dataclass(frozen=True)
class PFedDFSoft(FineTuned, FedDFSoft):
    """pFedDF (soft): pFedDF without parameters, as in KT-pFL's Table 1.

    Before every evaluation, each client fine-tunes a copy of its `FedDFSoft` model on its own data. The paper
    fine-tunes only the models of the last round.
    """

    title = "pFedDF (soft)"
    paper_name = "pFedDF"
