"""SCARLET: the server caches soft labels for D rounds, and requests predictions only for samples without a label.

Azuma, Nishio, Kitagawa, Nakano, Tanimura: Soft-Label Caching and Sharpening for Communication-Efficient Federated
Distillation, IEEE TMC 2026, https://arxiv.org/abs/2504.19602: synchronized caches and Enhanced ERA.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.knowledge.encodings import pack
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent


@dataclass(frozen=True, eq=False)
class ScarletState(PersonalState):
    """The state between rounds: each client's model, and the server's cache.

    Attributes:
        labels: (M, K) float64, the last soft label of each public sample.
        made: (M,) int64, the round in which each label was made; 0 for a sample without a label.
    """

    labels: Tensor
    made: Tensor


@dataclass(frozen=True)
class SCARLET(Personal):
    """SCARLET (Azuma et al., 2026): a consensus changes slowly, so recent labels are reused instead of sent again.

    The server sends each client the labels of the round's batch that the client lacks, and the client stores them.

    Attributes:
        duration: D, the number of later rounds in which a label is reused.
        beta: β, the exponent of Enhanced ERA: a label is the mean prediction to the power β, normalized. 1 keeps the
            mean.
    """

    title = "SCARLET"
    covered = True
    own_knowledge = frozenset({"cache"})

    duration: Annotated[int, Ge(0)] = 5
    beta: Annotated[float, Gt(0)] = 1.5

    def init(self, fed: Federation) -> ScarletState:
        """Start from the initial models, with an empty cache."""
        labels = torch.zeros(len(fed.public), fed.classes, dtype=torch.float64, device=fed.device)
        return ScarletState(fed.initial_models(), labels, labels.new_zeros(len(labels), dtype=torch.int64))

    def round(
        self, state: ScarletState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[ScarletState, RoundReport]:
        """Train, predict the requested samples, aggregate, cache, and distill from the cache."""
        batch, made = fed.public_batch(t), state.made.cpu()
        asked = (made[batch] == 0) | (made[batch] < t - self.duration)
        upload = exchange.train_and_predict(fed, state.models, cohort, t, batch[asked])
        fresh = sent(upload.batch, fed.device)
        labels = state.labels.index_put((fresh,), sharpened(upload.soft.mean(dim=0), self.beta))
        made = made.index_fill(0, upload.batch, t)
        known = batch[(made[batch] > 0) & (made[batch] >= t - self.duration)]  # samples with a valid label
        taught, teachers = replace(upload, batch=known), labels[sent(known, fed.device)]
        after, report = exchange.teach(fed, state, taught, teachers, t, since=made[known])
        request = Traffic(predictions_down=len(pack(asked)))
        traffic = {n: own + request for n, own in report.traffic.items()}
        return ScarletState(after.models, labels, sent(made, fed.device)), replace(
            report, traffic=traffic, metrics={"requested_share": float(asked.double().mean())}
        )

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return the labels of Enhanced ERA for new clients, (B, K)."""
        return sharpened(super().consensus(logits, fed), self.beta)


def sharpened(mean: Tensor, beta: float) -> Tensor:
    """Return p^β / Σ p^β of averaged probabilities, (B, K): Enhanced ERA."""
    powers = (mean / mean.amax(dim=-1, keepdim=True)).pow(beta)  # the largest power is 1 for any β
    return powers / powers.sum(dim=-1, keepdim=True)
