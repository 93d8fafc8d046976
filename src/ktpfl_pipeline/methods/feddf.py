"""FedDF: models are averaged within an architecture, and each average learns from the ensemble of all clients.

Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS 2020, Algorithm 3
(heterogeneous prototypes), https://arxiv.org/abs/2006.07242. Two variants stand beside it: `FedDFSoft`, in which only
predictions travel, and `PFedDF`, KT-pFL's personalized version with local fine-tuning.
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
    """What crosses rounds: the server's model of each architecture, its prototype."""

    prototypes: Prototypes


@dataclass(frozen=True)
class FedDF(Method[FedDFState]):
    """Key idea: all clients together are the best teacher of one model per architecture.

    The server holds the public set, so none of it travels. The fusion takes R epochs of the same SGD that distils into
    clients elsewhere, where the original takes Adam and stops on validation data.
    """

    title = "FedDF"
    exchanges = frozenset({"parameters"})
    paper_name = "FedDF"

    def init(self, fed: Federation) -> FedDFState:
        """Start from the common initial models."""
        return FedDFState(fed.initial_prototypes())

    def round(self, state: FedDFState, cohort: list[int], t: int, fed: Federation) -> tuple[FedDFState, RoundReport]:
        """Train from the prototypes, average within each architecture, distil the ensemble into each average."""
        trained = fed.train(FedDF.personal(self, state, cohort, fed), t)
        groups = fed.of_one_architecture(cohort).items()
        averages: Prototypes = {name: fed.average(select(trained, group)) for name, group in groups}
        batch = fed.public_batch(t)
        ensemble = fed.logits(trained, batch, t).double().mean(dim=0)  # (B, K): logits are averaged, not probabilities
        teacher = soft_predictions(ensemble, fed.distillation.temperature)
        fused = fed.fuse(averages, teacher, batch, t)
        return FedDFState({**state.prototypes, **fused}), RoundReport(trained, exchange.both_ways(trained))

    def personal(self, state: FedDFState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the fused prototype of each client's architecture."""
        return {n: state.prototypes[fed.by_id[n].architecture] for n in clients}

    def join(self, state: FedDFState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give newcomers the prototype of their architecture, the initial model where nobody had it."""
        return given(FedDF.personal(self, FedDFState({**fed.initial_prototypes(), **state.prototypes}), newcomers, fed))


@dataclass(frozen=True)
class PFedDF(FineTuned, FedDF):
    """Key idea: a fused prototype is the start, and a client's own data finish it.

    KT-pFL's footnote says "several epochs".
    """

    title = "pFedDF"
    paper_name = "pFedDF"


@dataclass(frozen=True)
class FedDFSoft(Personal):
    """Key idea: FedDF's where no parameters may travel: each client learns from the average of all logits."""

    title = "FedDF (soft)"
    paper_name = "FedDF"

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, average the logits, distil."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach(fed, state, upload, self.consensus(upload.logits, fed), t)

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return what the mean of all logits predicts, (B, K)."""
        return soft_predictions(logits.double().mean(dim=0), fed.distillation.temperature)


@dataclass(frozen=True)
class PFedDFSoft(FineTuned, FedDFSoft):
    """Key idea: pFedDF where no parameters may travel, as KT-pFL's Table 1 ran it.

    Each client's model of `FedDFSoft` is fine-tuned on its own data before every evaluation; the last evaluation is of
    FedDF's last models, fine-tuned.
    """

    title = "pFedDF (soft)"
    paper_name = "pFedDF"
