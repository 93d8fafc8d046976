"""SCARLET: the server keeps its labels of public samples for some rounds, and asks only for what it does not have.

Azuma, Nishio, Kitagawa, Nakano, Tanimura: Soft-Label Caching and Sharpening for Communication-Efficient Federated
Distillation, IEEE TMC 2026, https://arxiv.org/abs/2504.19602: synchronized caches, and Enhanced ERA.
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
    """What crosses rounds: each client's model, and the server's cache.

    Attributes:
        labels: (M, K) float64, what the server taught of each public sample last.
        made: (M,) in which round; 0 for never.
    """

    labels: Tensor
    made: Tensor


@dataclass(frozen=True)
class SCARLET(Personal):
    """Key idea: a consensus changes slowly, so one of some rounds ago need be neither asked for nor sent again.

    A client is sent the labels of the round's batch that it does not have, and keeps what arrives.

    Attributes:
        duration: D, for how many rounds after the one in which it was made a label serves.
        beta: β of Enhanced ERA: labels are the mean of predictions to this power, normalised; 1 is the mean itself.
    """

    title = "SCARLET"
    own_knowledge = frozenset({"cache"})

    duration: Annotated[int, Ge(0)] = 5
    beta: Annotated[float, Gt(0)] = 1.5

    def init(self, fed: Federation) -> ScarletState:
        """Start from the common initial models, with nothing in the cache."""
        labels = torch.zeros(len(fed.public), fed.classes, dtype=torch.float64, device=fed.device)
        return ScarletState(fed.initial_models(), labels, labels.new_zeros(len(labels), dtype=torch.int64))

    def round(
        self, state: ScarletState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[ScarletState, RoundReport]:
        """Train, predict what is asked for, aggregate, cache, distil from what is cached."""
        batch, made = fed.public_batch(t), state.made.cpu()
        asked = (made[batch] == 0) | (made[batch] < t - self.duration)
        upload = exchange.train_and_predict(fed, state.models, cohort, t, batch[asked])
        fresh = sent(upload.batch, fed.device)
        labels = state.labels.index_put((fresh,), sharpened(upload.soft.mean(dim=0), self.beta))
        made = made.index_fill(0, upload.batch, t)
        known = batch[(made[batch] > 0) & (made[batch] >= t - self.duration)]  # none expired that nobody has sent anew
        taught, teachers = replace(upload, batch=known), labels[sent(known, fed.device)]
        after, report = exchange.teach(fed, state, taught, teachers, t, since=made[known])
        request = Traffic(predictions_down=len(pack(asked)))
        traffic = {n: own + request for n, own in report.traffic.items()}
        return ScarletState(after.models, labels, sent(made, fed.device)), replace(report, traffic=traffic)

    def consensus(self, logits: Tensor, fed: Federation) -> Tensor:
        """Return the labels of Enhanced ERA for newcomers, (B, K), as they are made in every round."""
        return sharpened(super().consensus(logits, fed), self.beta)


def sharpened(mean: Tensor, beta: float) -> Tensor:
    """Return p^β / Σ p^β of averaged probabilities, (B, K): Enhanced ERA."""
    powers = (mean / mean.amax(dim=-1, keepdim=True)).pow(beta)  # the largest is 1, whatever β
    return powers / powers.sum(dim=-1, keepdim=True)
