"""FD: clients share their mean prediction per class, and each learns from the other clients' means.

Jeong, Oh, Kim, Park, Bennis, Kim: Communication-Efficient On-Device Machine Learning: Federated Distillation and
Augmentation under Non-IID Private Data, 2018, Algorithm 1, https://arxiv.org/abs/1811.11479
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.weights import Params, params_of


@dataclass(frozen=True, eq=False)
class FDState(PersonalState):
    """The state between rounds: each client's model and last upload.

    Attributes:
        means: (N, K, K) float64, each client's mean probabilities over its samples of each class; zeros for a class
            without samples.
        owned: (N, K) bool, whether a client has samples of a class.
    """

    means: Tensor
    owned: Tensor


@dataclass(frozen=True)
class FD(Personal):
    """FD (Jeong et al., 2018): clients exchange K mean predictions, one per class, without public data.

    Attributes:
        weight: γ, the weight of the cross-entropy with the other clients' mean prediction; the paper gives no value.
    """

    title = "FD"
    exchanges = frozenset({"prototypes"})

    weight: Annotated[float, Ge(0)] = 1.0

    def init(self, fed: Federation) -> FDState:
        """Start from the initial models, without means."""
        empty = torch.zeros(len(fed.clients), fed.classes, fed.classes, dtype=torch.float64, device=fed.device)
        return FDState(fed.initial_models(), empty, empty.new_zeros(empty.shape[:2], dtype=torch.bool))

    def round(self, state: FDState, cohort: list[int], t: int, fed: Federation) -> tuple[FDState, RoundReport]:
        """Send each client the other clients' mean predictions, train with them, and upload the client's own means."""
        rows, places = fed.rows(cohort), fed.places(cohort)
        others = state.owned.sum(dim=0) - state.owned[rows].long()  # (|S|, K) number of other clients with the class
        teachers = (state.means.sum(dim=0) - state.means[rows]) / others.clamp_min(1)[..., None]  # (|S|, K, K)
        models = {n: state.models[n] for n in cohort}
        calls = {
            n: (models[n], teacher, known, self.weight, t)
            for n, teacher, known in zip(cohort, teachers, others > 0, strict=True)
        }
        before = {n: (models[n], state.means[row], state.owned[row]) for n, row in zip(cohort, places, strict=True)}
        found = fed.run_training("train", train_client, calls, before)
        trained = {n: params for n, (params, _, _) in found.items()}
        means, owned = state.means.clone(), state.owned.clone()
        means[rows] = torch.stack([found[n][1] for n in cohort])
        owned[rows] = torch.stack([found[n][2] for n in cohort])
        traffic = exchange.prototypes(cohort, owned[rows], fed.classes)
        return FDState({**state.models, **trained}, means, owned), RoundReport(trained, traffic)


def train_client(
    space: Workspace, n: int, params: Params, teacher: Tensor, known: Tensor, weight: float, t: int
) -> Outcome[tuple[Params, Tensor, Tensor]]:
    """Train E epochs on CE(label) + γ·CE(other clients' mean prediction for the label) over client n's data.

    With γ = 0 the training equals local training bit for bit. The second term is zero for a class that no other client
    has.

    Args:
        teacher: (K, K) probabilities, one row per class.
        known: (K,) bool, whether another client has the class.
        weight: γ.

    Returns:
        The trained model; the mean probabilities by class over all forward passes of this training, (K, K) float64; and
        which classes occurred, (K,) bool.
    """
    setting, own = space.setting, PrivateSamples(space, n, t)
    module = space.module(n, params).train()
    targets, counted = teacher.to(space.device, space.dtype), known.to(space.device, space.dtype)
    sums = torch.zeros(setting.classes, setting.classes, dtype=torch.float64, device=space.device)
    counts = sums.new_zeros(setting.classes)

    def loss(batch: Tensor) -> Tensor:
        labels = own.labels[batch]
        logits = module(own.inputs(batch))
        log_probabilities = torch.log_softmax(logits, dim=1)
        sums.index_add_(0, labels, log_probabilities.detach().double().exp())
        counts.index_add_(0, labels, torch.ones_like(labels, dtype=counts.dtype))
        to_mean = -(targets[labels] * log_probabilities).sum(dim=1)  # (b,) cross-entropy with the mean
        return own.loss(logits, batch) + weight * (to_mean * counted[labels]).mean()

    outcome = own.descend(module, loss)
    return outcome.giving((params_of(module), sums / counts.clamp_min(1.0)[:, None], counts > 0))
